"""How much memory a process may use, on machines that are folders."""

import pytest

from replication.cpu_limits import MB, usable_memory


@pytest.fixture
def machine(tmp_path):
    """A machine whose groups of control are files: {group: limit}, in version 1 or 2."""

    def make(version, own, limits):
        groups, file, line = {
            1: ("sys/fs/cgroup/memory", "memory.limit_in_bytes", f"4:cpu:/x\n9:memory:{own}\n"),
            2: ("sys/fs/cgroup", "memory.max", f"0::{own}\n"),
        }[version]
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(line)
        for group, limit in limits.items():
            folder = tmp_path / groups / group.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(f"{limit}\n")
        return tmp_path

    return make


def test_without_limits_it_is_the_machines(tmp_path):
    assert usable_memory(tmp_path, {}) > 100


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "limits",
    [
        {"/job_5/step_0": 64 * MB, "/job_5": 90 * MB},
        {"/job_5/step_0": "max", "/job_5": 64 * MB},
        {"/job_5/step_0": 90 * MB, "/": 64 * MB},
        {"/": 64 * MB},  # of a container, whose groups the path does not name
        {"/job_5": 64 * MB, "/job_6": 32 * MB},  # the other is not this process's
    ],
)
def test_it_is_the_least_limit_of_the_groups_that_a_process_is_in(machine, version, limits):
    assert usable_memory(machine(version, "/job_5/step_0", limits), {}) == 64


@pytest.mark.parametrize(
    "given",
    [
        {"SLURM_MEM_PER_NODE": "64"},
        {"SLURM_MEM_PER_CPU": "16", "SLURM_CPUS_ON_NODE": "4"},
        {"SLURM_MEM_PER_GPU": "32", "SLURM_GPUS_ON_NODE": "2"},
    ],
)
def test_it_is_what_slurm_has_given_the_job(tmp_path, given):
    assert usable_memory(tmp_path, given) == 64


def test_zero_is_all_the_memory_of_a_node(tmp_path):
    assert usable_memory(tmp_path, {"SLURM_MEM_PER_NODE": "0"}) == usable_memory(tmp_path, {})
