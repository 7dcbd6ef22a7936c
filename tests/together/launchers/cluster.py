#!/usr/bin/env python3
"""Runs a command on a Slurm cluster of two nodes, n1 and n2, which are two daemons of this host: cluster.py FOLDER COMMAND...

It is started in new name spaces for the network, processes, mounts and the host's name (`unshare -n -p -f -m -u --kill-child`), so that nothing
of it is seen from outside, and nothing is left when it ends. Slurm wants an address that is not the loopback's, and a name for each node.
"""
import os, pathlib, secrets, socket, subprocess, sys, time

folder = pathlib.Path(sys.argv[1]).resolve()
address = "10.77.0.1"
for line in ("link set lo up", "link add v0 type veth peer name v1", f"addr add {address}/24 dev v0", "link set v0 up", "link set v1 up"):
    subprocess.run(["ip", *line.split()], check=True)
socket.sethostname("n1")
hosts = folder / "hosts"
hosts.write_text(f"127.0.0.1 localhost\n{address} n1 n2\n")
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)

key = folder / "munge.key"
key.write_bytes(secrets.token_bytes(1024))
key.chmod(0o400)
for name in ("state", "spool_n1", "spool_n2"):
    (folder / name).mkdir()
configuration = folder / "slurm.conf"
nodes = "\n".join(f"NodeName={name} NodeHostname=n1 NodeAddr={address} Port={port} CPUs=4" for name, port in (("n1", 16821), ("n2", 16822)))
configuration.write_text(f"""ClusterName=test
SlurmctldHost=n1({address})
SlurmctldPort=16817
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd_%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd_%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
""")
os.environ["SLURM_CONF"] = str(configuration)

log = open(folder / "daemons.log", "w")
daemons = []


def start(*command):
    daemons.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))


def wait_for(condition, what, seconds=30):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"{what} did not come up within {seconds} s:\n{(folder / 'daemons.log').read_text()[-2000:]}")
        time.sleep(0.1)


def idle():
    return "idle 2" in subprocess.run(["sinfo", "-h", "-o", "%T %D"], capture_output=True, text=True).stdout


start("munged", "-F", "--force", f"--key-file={key}", f"--socket={folder}/munge.sock", f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log",
      f"--seed-file={folder}/munge.seed")
wait_for((folder / "munge.sock").exists, "munged")
start("slurmctld", "-D", "-f", str(configuration))
for name in ("n1", "n2"):
    start("slurmd", "-D", "-N", name, "-f", str(configuration))
wait_for(idle, "Slurm")
status = subprocess.run(sys.argv[2:]).returncode
for daemon in reversed(daemons):
    daemon.terminate()
for daemon in daemons:
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
sys.exit(status)
