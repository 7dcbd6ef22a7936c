#include "support/fails.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/launch/rendezvous/identity.hpp>
#include <unisono/extensions/launch/rendezvous/launcher_claims.hpp>
#include <unisono/extensions/launch/rendezvous/rendezvous.hpp>
#include <unisono/extensions/launch/rendezvous/rendezvous_environment.hpp>
#include <unisono/extensions/launch/rendezvous/rendezvous_rules.hpp>

#include <sys/stat.h>
#include <unistd.h>

namespace un = unisono;
using un::Environment;
using un::Identity;
using un::Launcher;

namespace {

void refused(const Environment& environment, const std::vector<std::string>& words) {
    test::fails(un::ErrorCode::bad_input, words, [&] { static_cast<void>(un::identify(environment)); });
}

/// The variables that a launcher sets for one process of a job of `world` ranks, with `local`
/// consecutive ranks on each host.
struct Place {
    int rank = 0;
    int world = 1;
    int local = 1;
};

std::string text(int number) { return std::to_string(number); }

Environment torchrun(const Place& p) {
    return {{"RANK", text(p.rank)},
            {"WORLD_SIZE", text(p.world)},
            {"LOCAL_RANK", text(p.rank % p.local)},
            {"LOCAL_WORLD_SIZE", text(p.local)},
            {"GROUP_RANK", text(p.rank / p.local)},
            {"GROUP_WORLD_SIZE", text(p.world / p.local)},
            {"MASTER_ADDR", "10.0.0.1"},
            {"MASTER_PORT", "29500"},
            {"TORCHELASTIC_RUN_ID", "abc"}};
}
Environment openmpi(const Place& p) {
    return {{"OMPI_COMM_WORLD_RANK", text(p.rank)},
            {"OMPI_COMM_WORLD_SIZE", text(p.world)},
            {"OMPI_COMM_WORLD_LOCAL_RANK", text(p.rank % p.local)},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", text(p.local)}};
}
Environment mpich(const Place& p) {
    return {{"PMI_RANK", text(p.rank)},
            {"PMI_SIZE", text(p.world)},
            {"MPI_LOCALRANKID", text(p.rank % p.local)},
            {"MPI_LOCALNRANKS", text(p.local)}};
}
Environment srun(const Place& p) {
    return {{"SLURM_PROCID", text(p.rank)},
            {"SLURM_NTASKS", text(p.world)},
            {"SLURM_LOCALID", text(p.rank % p.local)},
            {"SLURM_NTASKS_PER_NODE", text(p.local)},
            {"SLURM_JOB_NODELIST", "node[03-07]"},
            {"SLURM_JOB_ID", "4711"},
            {"SLURM_STEP_ID", "0"}};
}
/// What a batch script, and all that it starts without srun, has of Slurm.
Environment batch_script(int tasks, int nodes) {
    return {{"SLURM_PROCID", "0"},
            {"SLURM_NTASKS", text(tasks)},
            {"SLURM_LOCALID", "0"},
            {"SLURM_NODEID", "0"},
            {"SLURM_NNODES", text(nodes)},
            {"SLURM_TASKS_PER_NODE", un::concat({tasks / nodes, "(x", nodes, ")"})},
            {"SLURM_JOB_NODELIST", "node[03-07]"},
            {"SLURM_JOB_ID", "4711"}};
}
Environment own(const Place& p) {
    return {{"UNISONO_RANK", text(p.rank)},
            {"UNISONO_WORLD_SIZE", text(p.world)},
            {"UNISONO_LOCAL_RANK", text(p.rank % p.local)},
            {"UNISONO_LOCAL_WORLD_SIZE", text(p.local)}};
}
Environment both(Environment a, const Environment& b) {
    for (const auto& [name, value] : b.variables()) a.set(name, value);
    return a;
}
Environment with(Environment a, std::string_view name, std::string_view value) {
    a.set(name, value);
    return a;
}
Environment without(Environment a, std::string_view name) {
    a.erase(name);
    return a;
}

struct Teller {
    Environment (*make)(const Place&);
    Launcher launcher;
    std::string rank, world, local_rank, local_world;
};
const Teller tellers[] = {
    {torchrun, Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {openmpi, Launcher::openmpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {mpich, Launcher::mpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {srun, Launcher::srun, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
    {own, Launcher::unisono_run, "UNISONO_RANK", "UNISONO_WORLD_SIZE", "UNISONO_LOCAL_RANK",
     "UNISONO_LOCAL_WORLD_SIZE"},
};

} // namespace

BOOST_AUTO_TEST_SUITE(launch_identity)

BOOST_AUTO_TEST_CASE(nobody_speaks_then_this_is_a_world_of_one) {
    BOOST_CHECK(un::identify(Environment{}) == Identity{});
    BOOST_CHECK(un::identify(Environment{{"LOCAL_RANK", "3"}, {"SLURM_NTASKS", "8"}, {"PATH", "/bin"}}) == Identity{});
}

BOOST_AUTO_TEST_CASE(every_launcher_in_every_place) {
    for (const Teller& teller : tellers) {
        for (const auto& [world, local] : {std::pair{1, 1}, {2, 2}, {4, 1}, {6, 2}, {12, 4}}) {
            for (int rank = 0; rank < world; ++rank) {
                const Identity found = un::identify(teller.make({rank, world, local}));
                const Identity expected{.rank = rank,
                                        .world = world,
                                        .local_rank = rank % local,
                                        .local_world = local,
                                        .hosts = world / local,
                                        .launcher = teller.launcher};
                BOOST_CHECK_MESSAGE(found == expected, un::name_of(teller.launcher)
                                                           << " rank " << rank << " of " << world);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(what_is_no_number_is_quoted) {
    for (const Teller& teller : tellers) {
        const Environment good = teller.make({1, 4, 2});
        for (const std::string& name : {teller.rank, teller.world, teller.local_rank, teller.local_world}) {
            for (const std::string bad :
                 {"", "x", "-1", "1.0", " 1", "1 ", "0x1", "99999999999999999999", "2147483648"}) {
                refused(with(good, name, bad), {name, "'" + bad + "'", "expected a number"});
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(contradictions_within_one_launcher_name_the_variables) {
    for (const Teller& teller : tellers) {
        Environment good = teller.make({1, 4, 2});
        for (const auto* name : {"GROUP_RANK", "GROUP_WORLD_SIZE"}) good.erase(name);
        refused(with(good, teller.rank, "4"), {teller.rank + "=4", teller.world + "=4"});
        refused(with(good, teller.world, "0"), {teller.world + "=0", "at least 1"});
        refused(with(good, teller.local_world, "0"), {teller.local_world + "=0", "at least 1"});
        refused(with(good, teller.local_world, "5"), {teller.local_world + "=5", teller.world + "=4"});
        refused(with(good, teller.local_rank, "2"), {teller.local_rank + "=2", teller.local_world + "=2"});
        refused(with(good, teller.rank, "0"), {teller.rank + "=0", teller.local_rank + "=1", "of a node"});
        refused(with(with(good, teller.rank, "3"), teller.local_rank, "0"),
                {teller.rank + "=3", teller.local_rank + "=0"});
        refused(without(good, teller.world), {teller.rank + "=1", teller.world, "is not"});
        if (teller.launcher != Launcher::srun) {
            refused(without(good, teller.rank), {teller.world + "=4", teller.rank, "is not"});
        }
    }
}

BOOST_AUTO_TEST_CASE(rank_and_world_of_the_node_instead_of_the_process) {
    // 2 nodes with 4 processes each, on a platform that sets RANK and WORLD_SIZE per node. Every
    // process detects it; otherwise ranks would be claimed twice in the rendezvous.
    int noticed = 0;
    for (int node = 0; node < 2; ++node) {
        for (int local = 0; local < 4; ++local) {
            const Environment found{
                {"RANK", text(node)}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", text(local)}, {"LOCAL_WORLD_SIZE", "4"}};
            refused(found, {"WORLD_SIZE=2", "LOCAL_WORLD_SIZE=4"});
            ++noticed;
        }
    }
    BOOST_CHECK_EQUAL(noticed, 8);
    refused({{"RANK", "0"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}}, {"RANK=0", "LOCAL_RANK=1"});
}

BOOST_AUTO_TEST_CASE(nodes_must_have_room_for_their_ranks) {
    refused(with(torchrun({1, 4, 2}), "GROUP_RANK", "2"), {"GROUP_RANK=2", "GROUP_WORLD_SIZE=2"});
    refused(with(torchrun({0, 4, 1}), "GROUP_WORLD_SIZE", "5"), {"WORLD_SIZE=4", "GROUP_WORLD_SIZE=5"});
    refused(with(torchrun({0, 4, 4}), "GROUP_WORLD_SIZE", "2"), {"LOCAL_WORLD_SIZE=4", "GROUP_WORLD_SIZE=2"});
    refused(with(torchrun({0, 4, 2}), "GROUP_WORLD_SIZE", "1"), {"LOCAL_WORLD_SIZE=2", "GROUP_WORLD_SIZE=1"});
}

BOOST_AUTO_TEST_CASE(two_launchers_that_agree_are_one) {
    const Place place{3, 8, 4};
    for (const Teller& a : tellers) {
        for (const Teller& b : tellers) {
            Identity found = un::identify(both(a.make(place), b.make(place)));
            found.launcher = Launcher::none;
            BOOST_CHECK((found == Identity{3, 8, 3, 4, 2, Launcher::none}));
        }
    }
}

BOOST_AUTO_TEST_CASE(two_launchers_that_disagree_are_both_quoted) {
    for (const Teller& a : tellers) {
        for (const Teller& b : tellers) {
            if (&a == &b || a.launcher == Launcher::unisono_run || b.launcher == Launcher::unisono_run) continue;
            const Environment mixed = both(a.make({1, 4, 4}), b.make({2, 8, 4}));
            refused(mixed, {a.rank + "=1", b.rank + "=2", a.world + "=4", b.world + "=8", "UNISONO_LAUNCHER"});
            const Identity believed =
                un::identify(with(mixed, "UNISONO_LAUNCHER", std::string(un::name_of(b.launcher))));
            BOOST_CHECK_EQUAL(believed.rank, 2);
            BOOST_CHECK_EQUAL(believed.world, 8);
        }
    }
    BOOST_CHECK(un::identify(with(torchrun({1, 2, 2}), "UNISONO_LAUNCHER", "none")) == Identity{});
    refused(with(torchrun({1, 2, 2}), "UNISONO_LAUNCHER", "openmpi"), {"UNISONO_LAUNCHER", "'openmpi'"});
    refused(with(torchrun({1, 2, 2}), "UNISONO_LAUNCHER", "who"), {"'who'"});
}

BOOST_AUTO_TEST_CASE(own_variables_win) {
    const Identity found = un::identify(both(both(openmpi({1, 2, 2}), srun({0, 1, 1})), own({5, 6, 3})));
    BOOST_CHECK((found == Identity{5, 6, 2, 3, 2, Launcher::unisono_run}));
}

BOOST_AUTO_TEST_CASE(srun_that_starts_torchrun_is_no_contradiction) {
    // 2 nodes with one torchrun each, which starts 4 processes.
    for (int rank = 0; rank < 8; ++rank) {
        const Identity found = un::identify(both(srun({rank / 4, 2, 1}), torchrun({rank, 8, 4})));
        BOOST_CHECK((found == Identity{rank, 8, rank % 4, 4, 2, Launcher::torchrun}));
    }
    // Not a process of that agent.
    refused(both(srun({0, 2, 1}), torchrun({4, 8, 4})), {"RANK=4", "SLURM_PROCID=0"});
}

BOOST_AUTO_TEST_CASE(a_batch_script_is_no_task_of_those_that_it_starts) {
    for (const Teller& teller : tellers) {
        if (teller.launcher == Launcher::srun) continue;
        for (int rank = 0; rank < 8; ++rank) { // the script's number of tasks may be any
            for (const int tasks : {1, 8}) {
                const Identity found = un::identify(both(batch_script(tasks, 1), teller.make({rank, 8, 8})));
                BOOST_CHECK((found == Identity{rank, 8, rank, 8, 1, teller.launcher}));
            }
        }
    }
    // Where nobody else speaks, its tasks are waited for, and named.
    BOOST_CHECK((un::identify(batch_script(4, 2)) == Identity{0, 4, 0, 2, 2, Launcher::srun}));
    const Environment told = with(both(batch_script(4, 1), openmpi({3, 4, 4})), "UNISONO_LAUNCHER", "srun");
    BOOST_CHECK((un::identify(told) == Identity{0, 4, 0, 4, 1, Launcher::srun}));
}

BOOST_AUTO_TEST_CASE(srun_starts_the_daemons_of_mpirun) {
    // mpirun in a batch script on two nodes: it starts the processes of its own node itself, and by
    // srun a daemon on the other one.
    for (const Teller& mpirun : {tellers[1], tellers[2]}) {
        std::string secret;
        for (int rank = 0; rank < 4; ++rank) {
            Environment all = both(rank < 2 ? batch_script(4, 2) : srun({0, 1, 1}), mpirun.make({rank, 4, 2}));
            BOOST_CHECK((un::identify(all) == Identity{rank, 4, rank % 2, 2, 2, mpirun.launcher}));
            all = both(all, {{"MASTER_ADDR", "node03"},
                             {"MASTER_PORT", "29500"},
                             {"UNISONO_TOKEN", "0123456789abcdef0123456789abcdef"}});
            const std::string found = un::rendezvous_point(all, un::identify(all)).token.text();
            BOOST_CHECK(rank == 0 || found == secret);
            secret = found;
        }
    }
    // Nor do hosts that mpirun reaches by ssh know the job.
    const Environment openmpi_job{{"PMIX_NAMESPACE", "3812950017"},
                                  {"MASTER_ADDR", "node03"},
                                  {"MASTER_PORT", "29500"},
                                  {"UNISONO_TOKEN", "0123456789abcdef0123456789abcdef"}};
    const Environment here = both(both(batch_script(4, 2), openmpi({0, 4, 2})), openmpi_job);
    const Environment there = both(openmpi({2, 4, 2}), openmpi_job);
    BOOST_CHECK(un::rendezvous_point(here, un::identify(here)).token ==
                un::rendezvous_point(there, un::identify(there)).token);
}

BOOST_AUTO_TEST_CASE(slurm_says_how_many_tasks_each_node_has) {
    const Environment uneven{{"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"}, {"SLURM_LOCALID", "0"},
                             {"SLURM_NODEID", "3"}, {"SLURM_NNODES", "4"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"}};
    BOOST_CHECK((un::identify(uneven) == Identity{6, 7, 0, 1, 4, Launcher::srun}));
    BOOST_CHECK_EQUAL(un::detail::tasks_on_node("2(x3),1", 0), 2);
    BOOST_CHECK_EQUAL(un::detail::tasks_on_node("2(x3),1", 2), 2);
    BOOST_CHECK_EQUAL(un::detail::tasks_on_node("4,3(x2),1", 3), 1);
    for (const char* bad : {"", "x", "2(x", "2(x)", "2(y3)", "2(x3", "2,,1", "2(x99999999999)"}) {
        BOOST_CHECK_EQUAL(un::detail::tasks_on_node(bad, 4), -1);
    }
    BOOST_CHECK_EQUAL(un::detail::tasks_on_node("2(x3)", 3), -1);
    // Without these variables, the unknown stays unknown.
    const Identity bare =
        un::identify(Environment{{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}});
    BOOST_CHECK((bare == Identity{2, 4, 0, 0, 0, Launcher::srun}));
}

BOOST_AUTO_TEST_CASE(kubeflow_pods) {
    const auto pod = [](int rank, int world, const char* each) {
        return Environment{{"RANK", text(rank)},         {"WORLD_SIZE", text(world)}, {"MASTER_ADDR", "job-master-0"},
                           {"MASTER_PORT", "23456"},     {"PET_NNODES", text(world)}, {"PET_NODE_RANK", text(rank)},
                           {"PET_NPROC_PER_NODE", each}, {"PET_MASTER_PORT", "23456"}};
    };
    BOOST_CHECK((un::identify(pod(1, 3, "1")) == Identity{1, 3, 0, 1, 3, Launcher::kubeflow}));
    BOOST_CHECK((un::identify(without(without(pod(1, 3, "1"), "RANK"), "WORLD_SIZE")) ==
                 Identity{1, 3, 0, 1, 3, Launcher::kubeflow}));
    BOOST_CHECK((un::identify(pod(1, 3, "auto")) == Identity{1, 3, -1, 0, 0, Launcher::kubeflow}));
    refused(pod(1, 3, "4"), {"RANK=1", "PET_NPROC_PER_NODE=4", "torchrun"});
    refused(with(pod(1, 3, "1"), "PET_NODE_RANK", "2"), {"RANK=1", "PET_NODE_RANK=2"});
    refused(with(pod(1, 3, "1"), "WORLD_SIZE", "6"), {"WORLD_SIZE=6", "PET_NNODES=3"});
    refused(with(pod(1, 3, "1"), "PET_NNODES", "99999999999999999999"), {"PET_NNODES", "expected a number"});
    // torchrun inside the pods.
    const Environment inside = both(pod(1, 2, "4"), torchrun({5, 8, 4}));
    BOOST_CHECK((un::identify(inside) == Identity{5, 8, 1, 4, 2, Launcher::torchrun}));
    refused(with(inside, "WORLD_SIZE", "7"), {"WORLD_SIZE=7", "PET_NNODES=2", "PET_NPROC_PER_NODE=4"});
    refused(with(inside, "PET_NODE_RANK", "0"), {"GROUP_RANK=1", "PET_NODE_RANK=0"});
}

BOOST_AUTO_TEST_CASE(sagemaker_hosts) {
    const Environment host{
        {"SM_HOSTS", R"(["algo-1", "algo-2"])"}, {"SM_CURRENT_HOST", "algo-2"}, {"SM_NUM_GPUS", "0"}};
    BOOST_CHECK((un::identify(host) == Identity{1, 2, 0, 1, 2, Launcher::sagemaker}));
    BOOST_CHECK((un::identify(both(host, torchrun({5, 8, 4}))) == Identity{5, 8, 1, 4, 2, Launcher::torchrun}));
    refused(both(host, torchrun({1, 8, 4})), {"GROUP_RANK=0", "SM_CURRENT_HOST=1"});
    refused(with(host, "SM_CURRENT_HOST", "algo-3"), {"algo-3", "algo-1"});
    refused(without(host, "SM_CURRENT_HOST"), {"SM_CURRENT_HOST is not"});
    for (const char* bad :
         {"", "[", "[]", "algo-1", "[\"a\"", "[\"a\",]", "[\"a\" \"b\"]", "[\"a\\\"\"]", "[1]", "[\"a\"]x"}) {
        refused(with(host, "SM_HOSTS", bad), {"SM_HOSTS"});
    }
}

BOOST_AUTO_TEST_CASE(given_by_the_program) {
    BOOST_CHECK((un::identity_of(0, 1) == Identity{0, 1, 0, 1, 1, Launcher::program}));
    BOOST_CHECK((un::identity_of(2, 3) == Identity{2, 3, -1, 0, 0, Launcher::program}));
    for (const auto& [rank, world] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -5}, {0, 1 << 21}}) {
        test::fails(un::ErrorCode::bad_input, {std::to_string(world)},
                    [rank = rank, world = world] { static_cast<void>(un::identity_of(rank, world)); });
    }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(launch_meeting)

namespace {

const std::string secret(32, 'a');

un::RendezvousPoint meeting(const Environment& environment) {
    return un::rendezvous_point(environment, un::identify(environment), "parent");
}
/// The rendezvous point of a job whose ranks have a secret.
un::RendezvousPoint secret_meeting(const Environment& environment) {
    return meeting(with(environment, "UNISONO_TOKEN", secret));
}
void no_meeting(const Environment& environment, const std::vector<std::string>& words,
                un::ErrorCode code = un::ErrorCode::bad_input) {
    test::fails(code, words, [&] { static_cast<void>(meeting(environment)); });
}

} // namespace

BOOST_AUTO_TEST_CASE(an_address_that_all_know) {
    const auto master = secret_meeting(torchrun({1, 4, 2}));
    BOOST_CHECK_EQUAL(master.host, "10.0.0.1");
    BOOST_CHECK_EQUAL(master.port, 29500);
    BOOST_CHECK(!master.launcher_listens && master.folder.empty());
    const auto v6 = secret_meeting(with(torchrun({1, 4, 2}), "UNISONO_MASTER", "[fe80::1]:77"));
    BOOST_CHECK_EQUAL(v6.host, "fe80::1");
    BOOST_CHECK_EQUAL(v6.port, 77);
    // As scripts and YAML write addresses.
    const auto written = [](const char* host, const char* port) {
        return secret_meeting(with(with(torchrun({1, 4, 2}), "MASTER_ADDR", host), "MASTER_PORT", port));
    };
    BOOST_CHECK_EQUAL(written("[::1]", "29500").host, "::1");
    BOOST_CHECK_EQUAL(written(" [fe80::1] ", "29500\n").host, "fe80::1");
    BOOST_CHECK_EQUAL(written("10.0.0.1\n", " 29500 ").host, "10.0.0.1");
    BOOST_CHECK_EQUAL(written("10.0.0.1", " 29500 ").port, 29500);
    BOOST_CHECK_EQUAL(secret_meeting(with(torchrun({1, 4, 2}), "UNISONO_MASTER", " [::1]:77\n")).host, "::1");
    no_meeting(with(torchrun({1, 4, 2}), "MASTER_ADDR", "  "), {"MASTER_ADDR='  '"});
    const Environment hub = with(with(own({0, 2, 2}), "UNISONO_HUB", "localhost:5"), "UNISONO_TOKEN", secret);
    BOOST_CHECK(meeting(hub).launcher_listens);
    BOOST_CHECK(meeting(hub).token == un::JobToken::parse(std::string(32, 'A')));
    no_meeting(without(hub, "UNISONO_TOKEN"), {"UNISONO_TOKEN"});
    no_meeting(with(hub, "UNISONO_TOKEN", "abc"), {"32 hexadecimal"});
    for (const char* bad : {"", "host", "host:", ":5", "host:0", "host:65536", "host:-1", "host:x"}) {
        no_meeting(with(hub, "UNISONO_HUB", bad), {"UNISONO_HUB", "host:port"});
    }
    no_meeting(with(torchrun({1, 4, 2}), "MASTER_PORT", "no"), {"MASTER_PORT='no'"});
    no_meeting(without(torchrun({1, 4, 2}), "MASTER_PORT"), {"MASTER_PORT is not"});
}

BOOST_AUTO_TEST_CASE(the_port_of_a_slurm_job_is_drawn_from_all_of_its_number) {
    const Environment job = with(srun({1, 4, 2}), "UNISONO_TOKEN", secret); // on two hosts
    BOOST_CHECK_EQUAL(meeting(job).port, 20'000 + 4711);
    BOOST_CHECK_EQUAL(meeting(with(job, "SLURM_JOB_ID", "18446744073709551615")).port, 20'000 + 1615);
    for (const char* bad : {"", "x", "-1", "47 11", "18446744073709551616"})
        no_meeting(with(job, "SLURM_JOB_ID", bad), {"SLURM_JOB_ID", "'" + std::string(bad) + "'", "a whole number"});
}

BOOST_AUTO_TEST_CASE(ranks_of_one_job_agree_and_other_jobs_differ) {
    const auto first = secret_meeting(torchrun({0, 4, 2}));
    BOOST_CHECK(first == secret_meeting(torchrun({3, 4, 2})));
    // One secret for several jobs: a proof of one job proves nothing in another.
    BOOST_CHECK(!(first.token == secret_meeting(with(torchrun({0, 4, 2}), "TORCHELASTIC_RUN_ID", "other")).token));
    // The processes of one job may know rank 0 by different names, as a Kubeflow master that is
    // localhost to itself. They still agree.
    BOOST_CHECK(first.token == secret_meeting(with(torchrun({0, 4, 2}), "MASTER_ADDR", "localhost")).token);
    const Environment trusted = with(torchrun({0, 4, 2}), "UNISONO_TRUSTED_NETWORK", "1");
    BOOST_CHECK(!(meeting(trusted).token == meeting(with(trusted, "TORCHELASTIC_RUN_ID", "other")).token));
    BOOST_CHECK(!(meeting(trusted).token == meeting(with(trusted, "MASTER_PORT", "29501")).token));
}

BOOST_AUTO_TEST_CASE(several_hosts_without_a_secret_are_refused) {
    const std::vector<std::string> words{"without a secret", "UNISONO_TOKEN", "UNISONO_TOKEN_FILE",
                                         "UNISONO_TRUSTED_NETWORK=1"};
    no_meeting(torchrun({1, 4, 2}), {"10.0.0.1:29500", "torchrun", words[0], words[1], words[2], words[3]},
               un::ErrorCode::refused);
    no_meeting(with(torchrun({1, 4, 2}), "UNISONO_TRUSTED_NETWORK", "0"), words, un::ErrorCode::refused);
    no_meeting(with(torchrun({1, 4, 2}), "UNISONO_TRUSTED_NETWORK", "yes"),
               {"UNISONO_TRUSTED_NETWORK is 'yes'", "0 or 1"});
    no_meeting(with(own({1, 4, 2}), "UNISONO_MASTER", "10.0.0.1:5"), words, un::ErrorCode::refused);
    no_meeting(srun({1, 4, 2}), words, un::ErrorCode::refused);
    BOOST_CHECK_EQUAL(meeting(with(torchrun({1, 4, 2}), "UNISONO_TRUSTED_NETWORK", "1")).port, 29500);
    // No variable gives the number of hosts, so rank 0 may be anywhere.
    const Environment bare{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
    no_meeting(bare, words, un::ErrorCode::refused);
    test::fails(un::ErrorCode::refused, {"10.0.0.1:5", "RendezvousPoint::token", words[1]}, [] {
        un::RendezvousPoint point;
        point.host = "10.0.0.1";
        point.port = 5;
        static_cast<void>(un::rendezvous(un::identity_of(0, 2), point));
    });
}

BOOST_AUTO_TEST_CASE(an_address_of_one_host_without_a_secret_is_a_file) {
    const auto one = meeting(torchrun({1, 2, 2}));
    BOOST_CHECK(!one.folder.empty() && one.own_folder && one.host.empty() && one == meeting(torchrun({0, 2, 2})));
    BOOST_CHECK(one.job != meeting(with(torchrun({1, 2, 2}), "MASTER_PORT", "29501")).job);
    // No variable gives the number of hosts, either.
    for (const char* const name : {"127.0.0.1", "localhost", "::1"}) {
        const Environment bare{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", name}, {"MASTER_PORT", "29500"}};
        BOOST_CHECK(!meeting(bare).folder.empty());
        BOOST_CHECK_EQUAL(secret_meeting(bare).host, name);
    }
    const Environment master = with(own({1, 2, 2}), "UNISONO_MASTER", "127.0.0.1:5");
    BOOST_CHECK(!meeting(master).folder.empty());
    BOOST_CHECK(meeting(master).job != meeting(with(master, "UNISONO_MASTER", "127.0.0.1:6")).job);
}

BOOST_AUTO_TEST_CASE(a_secret_in_a_file) {
    const unisono_test::Folder folder;
    const std::string path = folder / "token";
    const Environment job = with(torchrun({1, 4, 2}), "UNISONO_TOKEN_FILE", path);
    no_meeting(job, {"cannot read UNISONO_TOKEN_FILE='" + path + "'"}, un::ErrorCode::refused);
    unisono_test::write_file(path, secret + "\n");
    BOOST_CHECK(meeting(job).token == secret_meeting(torchrun({1, 4, 2})).token);
    unisono_test::write_file(path, secret, 0400);
    BOOST_CHECK(meeting(job).token == secret_meeting(torchrun({1, 4, 2})).token);
    for (const mode_t mode : {0640u, 0604u, 0620u}) {
        unisono_test::write_file(path, secret, mode);
        no_meeting(job, {"not a file that this user alone can read", path}, un::ErrorCode::refused);
    }
    unisono_test::write_file(path, "abc\n");
    no_meeting(job, {"UNISONO_TOKEN_FILE's file has 3 characters", "32 hexadecimal"});
    no_meeting(with(job, "UNISONO_TOKEN", secret), {"UNISONO_TOKEN and UNISONO_TOKEN_FILE are both set"});
    no_meeting(with(job, "UNISONO_TOKEN_FILE", folder.path()), {"not a file"}, un::ErrorCode::refused);
}

BOOST_AUTO_TEST_CASE(one_host_without_an_address_meets_by_a_file) {
    const auto mine = meeting(openmpi({1, 2, 2}));
    BOOST_CHECK(!mine.folder.empty() && mine.host.empty() && mine.job == meeting(openmpi({0, 2, 2})).job);
    const Environment other = openmpi({1, 2, 2});
    BOOST_CHECK(mine.job != un::rendezvous_point(other, un::identify(other), "another launcher").job);
    // Open MPI names its job, so it needs no common parent: a script may start each rank.
    const Environment named = with(other, "PMIX_NAMESPACE", "1731133441");
    BOOST_CHECK_EQUAL(meeting(named).job, un::rendezvous_point(named, un::identify(named), "another launcher").job);
    BOOST_CHECK(meeting(named).job != meeting(with(other, "PMIX_NAMESPACE", "1731133442")).job);
    BOOST_CHECK(mine.by_parent && !meeting(named).by_parent);
    // torchrun's own store listens at MASTER_PORT.
    const auto store = meeting(with(torchrun({1, 2, 2}), "TORCHELASTIC_USE_AGENT_STORE", "True"));
    BOOST_CHECK(!store.folder.empty());
    const auto hosts = secret_meeting(with(torchrun({1, 4, 2}), "TORCHELASTIC_USE_AGENT_STORE", "True"));
    BOOST_CHECK_EQUAL(hosts.port, 29501);
    BOOST_CHECK(hosts.further_ports > 0);
}

BOOST_AUTO_TEST_CASE(the_folder_is_in_the_one_that_the_system_keeps_for_the_user) {
    const unisono_test::Folder made;
    const std::string folder = made.path(); // mode 0700
    const Environment one = openmpi({1, 2, 2});
    BOOST_CHECK_EQUAL(meeting(with(one, "XDG_RUNTIME_DIR", folder)).folder, folder + "/unisono");
    // Others can read it.
    BOOST_REQUIRE_EQUAL(::chmod(folder.c_str(), 0755), 0);
    const std::string in_tmp = "/tmp/unisono-" + std::to_string(::geteuid());
    for (const std::string& unfit : {folder, std::string("/no/such/folder"), std::string("relative"), std::string()})
        BOOST_CHECK_EQUAL(meeting(with(one, "XDG_RUNTIME_DIR", unfit)).folder, in_tmp);
    BOOST_CHECK_EQUAL(meeting(with(with(one, "XDG_RUNTIME_DIR", folder), "UNISONO_FOLDER", "/shared/x")).folder,
                      "/shared/x");
}

BOOST_AUTO_TEST_CASE(a_given_folder) {
    const Environment given = with(openmpi({1, 4, 2}), "UNISONO_FOLDER", "/shared/x");
    BOOST_CHECK_EQUAL(meeting(given).folder, "/shared/x");
    BOOST_CHECK_EQUAL(meeting(given).job, "job");
    BOOST_CHECK_EQUAL(meeting(with(given, "UNISONO_JOB", "run-1")).job, "run-1");
    for (const char* bad : {"", "..", "a/b", "a b", ".hidden"})
        no_meeting(with(given, "UNISONO_JOB", bad), {"UNISONO_JOB"});
    no_meeting(with(given, "UNISONO_FOLDER", ""), {"UNISONO_FOLDER"});
    BOOST_CHECK_EQUAL(meeting(with(given, "UNISONO_HOST", "10.0.0.7")).listen_host, "10.0.0.7");
    for (const std::string& bad : {std::string(), std::string("10.0.0.7 "), std::string("a b"), std::string(257, 'x')})
        no_meeting(with(given, "UNISONO_HOST", bad), {"UNISONO_HOST", "expected the name or address"});
}

BOOST_AUTO_TEST_CASE(several_hosts_need_an_address) {
    no_meeting(openmpi({1, 4, 2}), {"openmpi", "MASTER_ADDR", "UNISONO_FOLDER"}, un::ErrorCode::refused);
    BOOST_CHECK_EQUAL(secret_meeting(srun({1, 4, 2})).host, "node03");
    BOOST_CHECK_EQUAL(un::detail::first_host("alpha,beta[1-3]"), "alpha");
    BOOST_CHECK_EQUAL(un::detail::first_host("beta[7,9-11]"), "beta7");
    BOOST_CHECK_EQUAL(un::detail::first_host("a[1-2]-ib,b"), "a1-ib");
    BOOST_CHECK_EQUAL(un::detail::first_host("single"), "single");
    BOOST_CHECK_EQUAL(un::detail::first_host("broken[1"), "");
}

BOOST_AUTO_TEST_CASE(tokens) {
    const auto one = un::JobToken::random();
    BOOST_CHECK(one == un::JobToken::parse(one.text()));
    BOOST_CHECK(!(one == un::JobToken::random()));
    auto value = one.value();
    for (std::size_t bit = 0; bit < 128; ++bit) {
        value[bit / 8] = static_cast<std::uint8_t>(value[bit / 8] ^ (1u << (bit % 8)));
        BOOST_CHECK(!(un::JobToken{value} == one));
        value = one.value();
    }
}

BOOST_AUTO_TEST_SUITE_END()
