"""Writes what real kernels say of machines that qemu emulates: ``python -m tests.machine.boot [MACHINE ...]``.

Needs apt-get, dpkg-deb, cpio, qemu-system-x86, qemu-system-arm and device-tree-compiler; a kernel of Debian is fetched
for the first machine of a processor, and each boots in some seconds. ``kernels/MACHINE.txt`` gets the release of
the kernel, the CPUs that a process there may run on, and the files of sysfs that `hios.machine.topology` reads, a
folder a line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("kernels")


@dataclass(frozen=True, slots=True)
class Machine:
    """Options of qemu, CPUs that are switched off, the cpuset of the process, and capacities of CPUs of Arm."""

    options: str
    offline: str = ""
    cpuset: str = ""
    capacities: tuple[int, ...] = ()


MACHINES = {
    "one_socket": Machine("-cpu Skylake-Client-v4 -smp 4,sockets=1,cores=2,threads=2"),
    "two_sockets": Machine(
        "-cpu Skylake-Server-v5 -smp 12,sockets=2,cores=3,threads=2 -object memory-backend-ram,id=a,size=256M "
        "-object memory-backend-ram,id=b,size=256M -numa node,cpus=0-5,memdev=a -numa node,cpus=6-11,memdev=b"
    ),
    "four_sockets": Machine(
        "-cpu Skylake-Server-v5 -smp 8,sockets=4,cores=2,threads=1 "
        + " ".join(
            f"-object memory-backend-ram,id=m{node},size=128M -numa node,cpus={2 * node}-{2 * node + 1},memdev=m{node}"
            for node in range(4)
        )
    ),
    # two nodes of two dies each, every die with a last level of cache of its own, as an EPYC with NPS2 has
    "nodes_of_a_socket": Machine(
        "-machine q35 -cpu Skylake-Server-v5 -smp 16,sockets=1,dies=4,cores=2,threads=2 "
        "-object memory-backend-ram,id=a,size=256M "
        "-object memory-backend-ram,id=b,size=256M -numa node,cpus=0-7,memdev=a -numa node,cpus=8-15,memdev=b"
    ),
    # node 1 has memory alone, as behind CXL; node 0 spans both sockets, as with interleaved memory
    "memory_node": Machine(
        "-cpu Skylake-Server-v5 -smp 4,sockets=2,cores=2,threads=1 -object memory-backend-ram,id=a,size=256M "
        "-object memory-backend-ram,id=b,size=256M -numa node,cpus=0-3,memdev=a -numa node,memdev=b"
    ),
    "offline": Machine("-cpu Skylake-Server-v5 -smp 8,sockets=2,cores=2,threads=2", offline="1 4 5"),
    "limited": Machine("-cpu Skylake-Server-v5 -smp 8,sockets=2,cores=2,threads=2", cpuset="2-5"),
    "big_little": Machine(
        "-machine virt -cpu cortex-a72 -smp 6,sockets=1,clusters=2,cores=3",
        capacities=(446, 446, 446, 1024, 1024, 1024),
    ),
}

_INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t cgroup2 cgroup /sys/fs/cgroup
for cpu in OFFLINE; do echo 0 > /sys/devices/system/cpu/cpu$cpu/online; done
if [ "CPUSET" ]; then
    echo +cpuset > /sys/fs/cgroup/cgroup.subtree_control
    /bin/busybox mkdir /sys/fs/cgroup/limited
    echo CPUSET > /sys/fs/cgroup/limited/cpuset.cpus
    echo $$ > /sys/fs/cgroup/limited/cgroup.procs
fi
cd /sys
echo BEGIN $(/bin/busybox uname -rm)
/bin/busybox taskset -p $$
for folder in devices/cpu_atom devices/system/node/node[0-9]* devices/system/cpu/cpu[0-9]*; do
    line=$folder
    for file in cpus cpulist cpu_capacity topology/thread_siblings_list topology/physical_package_id \\
        cache/index0/level cache/index0/shared_cpu_list cache/index1/level cache/index1/shared_cpu_list \\
        cache/index2/level cache/index2/shared_cpu_list cache/index3/level cache/index3/shared_cpu_list; do
        [ -e $folder/$file ] && line="$line $file=$(/bin/busybox cat $folder/$file)"
    done
    [ "$line" = $folder ] || echo $line
done
echo END
/bin/busybox poweroff -f
"""


def _unpacked(architecture: str, folder: Path) -> Path:
    """A folder with Debian's kernel and busybox for a processor, whichever this machine has."""
    target = folder / architecture
    if target.exists():
        return target
    for name in ("lists/partial", "cache/archives/partial"):
        (target / name).mkdir(parents=True)
    (target / "status").touch()
    settings = {
        "APT::Architecture": architecture,
        "APT::Architectures": architecture,
        "Dir::State": f"{target}/",
        "Dir::State::status": f"{target}/status",
        "Dir::Cache": f"{target}/cache",
    }
    apt = ["apt-get", "--quiet=2", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    shown = subprocess.run(
        ["apt-cache", *apt[2:], "depends", f"linux-image-cloud-{architecture}"],
        check=True,
        capture_output=True,
        text=True,
    )
    kernel = shown.stdout.split("Depends: ")[1].split()[0]
    subprocess.run([*apt, "download", kernel, "busybox-static"], check=True, cwd=target)
    for package in target.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, target], check=True)
    return target


def _says(machine: Machine, folder: Path) -> str:
    """What the kernel of a machine says, lines after the first: paths below /sys, and their texts."""
    arm = bool(machine.capacities)
    unpacked = _unpacked("arm64" if arm else "amd64", folder)
    root = folder / "root"
    (root / "bin").mkdir(parents=True, exist_ok=True)
    (root / "bin/busybox").write_bytes((unpacked / "bin/busybox").read_bytes())
    (root / "init").write_text(
        _INIT.replace("OFFLINE", machine.offline).replace("CPUSET", machine.cpuset), encoding="utf-8"
    )
    for path in (root / "bin/busybox", root / "init"):
        path.chmod(0o755)
    initrd = subprocess.run(
        ["sh", "-c", "find . | cpio --quiet --create --format newc"], check=True, cwd=root, capture_output=True
    ).stdout
    (folder / "initrd").write_bytes(initrd)
    (kernel,) = (unpacked / "boot").glob("vmlinuz-*")
    words = ["qemu-system-aarch64" if arm else "qemu-system-x86_64", *machine.options.split(), "-m", "512M"]
    words += ["-kernel", str(kernel), "-initrd", str(folder / "initrd"), "-nographic", "-no-reboot", "-net", "none"]
    if arm:
        words += ["-dtb", str(_tree(words, machine.capacities, folder))]
    words += ["-append", f"console={'ttyAMA0' if arm else 'ttyS0'} quiet panic=-1 no_timer_check"]
    printed = subprocess.run(words, check=False, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    lines = printed.stdout.replace("\r", "").partition("BEGIN ")[2].partition("\nEND")[0]
    if not lines:
        raise RuntimeError(f"the machine said nothing: {printed.stdout[-2000:]}{printed.stderr}")
    return lines


def _tree(words: list[str], capacities: tuple[int, ...], folder: Path) -> Path:
    """The device tree of a machine of Arm, with the capacities of its CPUs, which qemu does not know."""
    path = folder / "machine.dtb"
    machine = words.index("-machine") + 1
    dump = [*words[:machine], f"{words[machine]},dumpdtb={path}", *words[machine + 1 :]]
    subprocess.run(dump, check=True, capture_output=True)
    for number, capacity in enumerate(capacities):
        node = f"/cpus/cpu@{number}"
        subprocess.run(["fdtput", "-t", "i", path, node, "capacity-dmips-mhz", str(capacity)], check=True)
    return path


def main(names: list[str]) -> None:
    """Boot machines, all or those that are named, and write what their kernels say."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in names or MACHINES:
            text = _says(MACHINES[name], Path(folder))
            (FOLDER / f"{name}.txt").write_text(text + "\n", encoding="utf-8")
            sys.stdout.write(f"{name}: {len(text)} bytes\n")


if __name__ == "__main__":
    main(sys.argv[1:])
