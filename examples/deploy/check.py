#!/usr/bin/env python3
"""Starts a program as each manifest's system would: with the variables that it sets, all on this machine, names of hosts replaced by
addresses of the loopback. The program is roll_call. Manifests are read as the systems read them, and checked where python3 has a
schema for them (PyPI: kubernetes-validate, boto3; tests/run.sh --all installs both)."""
import json, os, re, socket, subprocess, sys, tempfile, time
from pathlib import Path

try:
    import yaml
except ImportError:
    print("skipped: python3 has no yaml (Debian: python3-yaml)")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).parent.parent))
import launched

HERE = Path(__file__).parent
TOKEN = {"UNISONO_TOKEN": "000102030405060708090a0b0c0d0e0f"}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run(name, command, ranks):
    """One process for each rank's variables; all must find each other."""
    world = len(ranks)
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**launched.environment(), **variables}) for variables in ranks]
    try:
        told = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    lines = "".join(out for out, _ in told)
    assert all(process.returncode == 0 for process in processes), f"{name}: {told}"
    for rank in range(world):
        assert re.search(rf"^rank {rank} of {world}, ", lines, re.M), f"{name}: rank {rank} is missing:\n{lines}"
    assert f"add up to {sum(rank * rank for rank in range(world))}\n" in lines, f"{name}:\n{lines}"
    print(f"{name}: {world} ranks met")


def validate(manifest):
    try:
        import kubernetes_validate
    except ImportError:
        return print("skipped in part: schemas: python3 has no kubernetes_validate")
    kubernetes_validate.validate(manifest, "1.27", strict=True)


def pods(template):
    containers = template["spec"]["containers"]
    assert len(containers) == 1 and containers[0]["command"], "expected one container and its command"
    return containers[0]


def secret_of(container):
    """Of which Kubernetes secret the job's token is taken."""
    return next((entry["valueFrom"]["secretKeyRef"]["name"] for entry in container["env"] if entry["name"] == "UNISONO_TOKEN"), None)


def pytorchjob(program):
    job = yaml.safe_load((HERE / "pytorchjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    specs = job["spec"]["pytorchReplicaSpecs"]
    assert specs["Master"]["replicas"] == 1
    for one in specs.values():
        container = pods(one["template"])
        assert secret_of(container) == "train-token", "the ranks have no secret"
        assert container["name"] == "pytorch", "the operator sets variables of the container pytorch alone"
        assert any(port["name"] == "pytorchjob-port" for port in container["ports"])
        validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train"}, **one["template"]})
    nodes = 1 + specs["Worker"]["replicas"]
    each = int(job["spec"]["nprocPerNode"])
    assert each == 1, "the pod's command starts one process"
    port = free_port()
    run("pytorchjob.yaml", [program], [
        {"RANK": str(node), "WORLD_SIZE": str(nodes * each), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
         "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": port, "PET_NNODES": str(nodes), "PET_NODE_RANK": str(node),
         "PET_NPROC_PER_NODE": str(each), "PYTHONUNBUFFERED": "1", **TOKEN} for node in range(nodes)])


def jobset(program):
    jobs = yaml.safe_load((HERE / "jobset.yaml").read_text())
    assert (jobs["apiVersion"], jobs["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    (one,) = jobs["spec"]["replicatedJobs"]
    job = one["template"]["spec"]
    validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": job})
    assert job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"]
    first = f"{jobs['metadata']['name']}-{one['name']}-0-0.{jobs['metadata']['name']}"
    port = free_port()
    ranks = []
    for index in range(job["completions"]):
        variables = {"JOB_COMPLETION_INDEX": str(index)}
        for entry in pods(job["template"])["env"]:
            if "value" in entry:
                variables[entry["name"]] = entry["value"]
            elif entry["name"] == "UNISONO_TOKEN":
                assert entry["valueFrom"]["secretKeyRef"]["name"] == "train-token"
            elif "fieldRef" in entry["valueFrom"]:
                assert "job-completion-index" in entry["valueFrom"]["fieldRef"]["fieldPath"]
                variables[entry["name"]] = str(index)
        assert variables["MASTER_ADDR"] == first, f"{variables['MASTER_ADDR']} is not the first pod's name, {first}"
        ranks.append({**variables, **TOKEN, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})
    run("jobset.yaml", [program], ranks)


def elastic_job(elastic):
    """Pods die and are started again with the same variables; all end with one hash."""
    service, job = yaml.safe_load_all((HERE / "elastic_job.yaml").read_text())
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    validate(job)
    validate(service)
    spec = job["spec"]
    template = spec["template"]["spec"]
    container = pods(spec["template"])
    assert template["restartPolicy"] == "OnFailure" and spec["completionMode"] == "Indexed"
    assert secret_of(container) == "train-token" and template["subdomain"] == service["metadata"]["name"]
    said = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    assert said["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{template['subdomain']}"
    (mount,) = container["volumeMounts"]
    assert mount["mountPath"] == said["UNISONO_ELASTIC_FOLDER"]
    world, port = spec["completions"], free_port()
    with tempfile.TemporaryDirectory() as folder:
        def start(index, deaths):
            variables = {**said, **TOKEN, "RANK": str(index), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                         "UNISONO_ELASTIC_FOLDER": folder}
            return subprocess.Popen([elastic, "--tcp", "--pause", "30", *deaths], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, env={**launched.environment(), **variables})
        # The numbers of ranks. Ranks that are added have other numbers.
        deaths = ["--kill", "2@15", "--kill", "0@25"]
        processes = [start(index, deaths) for index in range(world)]
        restarts, told = 0, ""
        until = time.monotonic() + 100
        try:
            while any(process.poll() is None for process in processes) and time.monotonic() < until:
                time.sleep(0.05)
                for index, process in enumerate(processes):
                    if process.poll() not in (None, 0):
                        restarts += 1
                        told += "".join(process.communicate())
                        processes[index] = start(index, deaths)
            told += "".join("".join(process.communicate(timeout=10)) for process in processes)
            # A process that is started again too late finds that training has ended.
            processes.append(start(3, []))
            told += "".join(processes[-1].communicate(timeout=20))
        finally:
            for process in processes:
                process.kill()
    assert restarts == 2 and all(process.returncode == 0 for process in processes), f"{restarts} restarts:\n{told}"
    assert told.count("one hash: the run of one rank has the same") == 1 and f"ends with {world} ranks" in told, told
    print(f"elastic_job.yaml: {world} ranks, of which {restarts} died and were started again, end with the undisturbed hash")


def slurm(program, script_name="slurm.sh"):
    script = (HERE / script_name).read_text()
    option = lambda name: int(re.search(rf"^#SBATCH --{name}=(\d+)$", script, re.M)[1])
    nodes, each = option("nodes"), option("ntasks-per-node")
    with tempfile.TemporaryDirectory() as folder:
        # A stand-in for srun that starts each task with the variables that Slurm sets.
        fake = Path(folder) / "srun"
        fake.write_text(f"""#!/usr/bin/env python3
import os, subprocess, sys
command = sys.argv[1:]
while command[0].startswith("--"): command = command[1:]
tasks = [subprocess.Popen(command, env={{**os.environ, "SLURM_PROCID": str(task), "SLURM_NTASKS": "{nodes * each}",
         "SLURM_LOCALID": str(task % {each}), "SLURM_NODEID": str(task // {each}), "SLURM_NNODES": "{nodes}",
         "SLURM_STEP_NUM_TASKS": "{nodes * each}", "SLURM_TASKS_PER_NODE": "{each}(x{nodes})",
         "SLURM_STEP_TASKS_PER_NODE": "{each}(x{nodes})", "SLURM_STEP_ID": "0"}}) for task in range({nodes * each})]
sys.exit(max(task.wait() for task in tasks))
""")
        fake.chmod(0o755)
        environment = {**launched.environment(), "PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "17",
                       "SLURM_JOB_NODELIST": "localhost,other", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        done = subprocess.run(["bash", str(HERE / script_name), program], capture_output=True, text=True, timeout=60,
                              env=environment)
    assert done.returncode == 0, done
    for rank in range(nodes * each):
        assert re.search(rf"^rank {rank} of {nodes * each}, .*\(srun\)$", done.stdout, re.M), \
            f"{script_name}: rank {rank} is missing:\n{done.stdout}"
    print(f"{script_name}: {nodes * each} ranks met")


def sagemaker(program):
    job = json.loads((HERE / "sagemaker.json").read_text())
    try:
        import boto3  # knows the format of a request
        from botocore.validate import validate_parameters
    except ImportError:
        print("skipped in part: the schema of sagemaker.json: python3 has no boto3")
    else:
        shape = boto3.session.Session().client("sagemaker", region_name="eu-central-1").meta.service_model
        validate_parameters(job, shape.operation_model("CreateTrainingJob").input_shape)
    assert "UNISONO_TOKEN" in job["Environment"], "the ranks have no secret"
    shell, entry, _ = job["AlgorithmSpecification"]["ContainerEntrypoint"]
    hosts = [f"127.0.0.{1 + host}" for host in range(job["ResourceConfig"]["InstanceCount"])]
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for host in hosts:
            told = Path(folder) / f"{host}.json"
            told.write_text(json.dumps({"current_host": host, "hosts": hosts, "network_interface_name": "eth0"}, indent=1))
            ranks.append({"SM_RESOURCE_CONFIG_FILE": str(told), **TOKEN})
        run("sagemaker.json", [shell, str(HERE / Path(entry).name), program], ranks)


if __name__ == "__main__":
    roll_call = sys.argv[1]
    for check in (pytorchjob, jobset, slurm, sagemaker):
        check(roll_call)
    slurm(roll_call, "slurm_elastic.sh")
    elastic_job(sys.argv[2])
