//! The attacks that a command tries from inside of its container, with what each may say and how it may end. A script
//! asks with `try`, which says `refused` or what was granted.

/// One attack.
pub(super) struct Attack {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) script: &'static str,
    /// Each of these is right.
    pub(super) ends: &'static [&'static str],
    pub(super) says: Says,
}

/// What is to be read on its standard output.
pub(super) enum Says {
    /// So many times `refused`, and nothing else.
    Refused(usize),
    Exactly(&'static str),
    /// A flood, which is cut off.
    AtMost(usize),
}

use Says::{AtMost, Exactly, Refused};

const WELL: &[&str] = &["exited 0"];

const fn refused(
    id: &'static str,
    what: &'static str,
    times: usize,
    script: &'static str,
) -> Attack {
    Attack { id, what, script, ends: WELL, says: Refused(times) }
}

const fn says(
    id: &'static str,
    what: &'static str,
    text: &'static str,
    script: &'static str,
) -> Attack {
    Attack { id, what, script, ends: WELL, says: Exactly(text) }
}

pub(super) const TRY: &str =
    "try() { if \"$@\" > /dev/null 2>&1; then echo \"granted: $*\"; else echo refused; fi; }; ";

pub(super) const ATTACKS: &[Attack] = &[
    refused(
        "A3",
        "hard link to a file outside, found in the workspace; a second name for an output",
        1,
        "echo x > one; ln one two; try cat leak.txt",
    ),
    refused(
        "A4",
        "character and block devices",
        4,
        "try mknod n c 1 3; try mknod b b 8 0; try mknod /tmp/n c 1 5; try devmem 0",
    ),
    says(
        "A5",
        "pipes in the tree, one with a reader that never ends",
        "",
        "mkfifo p; mkdir pipes; mkfifo pipes/q; cat p > /dev/null &",
    ),
    says(
        "A6",
        "set-id bits on the command's own copy of a shell",
        "200000 200000\nNoNewPrivs:\t1\n",
        "cp /bin/busybox .; chmod 6755 busybox; echo $(./busybox id -u) $(./busybox id -g); \
         ./busybox grep NoNewPrivs /proc/self/status; rm busybox; echo x > setid; chmod 6755 setid",
    ),
    refused(
        "A7",
        "a sparse file of a tebibyte",
        2,
        "try truncate -s 1T huge; try dd if=/dev/zero of=huge bs=1 count=1 seek=1099511627776; rm -f huge",
    ),
    says(
        "A8",
        "a flood of empty files, in the copy and in /tmp",
        "bounded\nbounded\n",
        "for d in flood /tmp/flood; do mkdir $d; i=0; while echo x > $d/$i; do i=$((i+1)); done 2> /dev/null; \
         [ $i -lt 4500 ] && echo bounded; rm -r $d; done",
    ),
    says(
        "A9",
        "file names that are no text: newline, terminal escape, other direction, option, backslash, bytes",
        "",
        "mkdir odd; cd odd; for n in 'a\\nb' 'esc\\033]0;t\\007' 'rtl\\342\\200\\256cod' '\\377\\376' 'caf\\303\\251' 'cafe\\314\\201'; do \
         printf x > \"$(printf \"$n\")\"; done; printf x > ./-rf; printf x > 'back\\slash'",
    ),
    says(
        "A10",
        "git's files by every spelling that some file system takes for `.git`",
        "",
        "for d in .git .GIT 'git~1' '.git ' '.git.'; do mkdir -p \"$d/hooks\"; echo x > \"$d/hooks/pre-commit\"; \
         echo x > \"$d/config\"; done; echo 'ref: x' > nested; mkdir m; echo 'gitdir: ../../outside' > m/.git",
    ),
    says(
        "A11",
        "links that lead outside, to be written through when the copy is read or the patch imported",
        "",
        "ln -s /etc/passwd bad; ln -s ../outside up; ln -s /proc/self/root/etc deep; ln -s loop loop",
    ),
    Attack {
        id: "A12",
        what: "a fork bomb",
        script: "bomb() { bomb | bomb & }; bomb 2> /dev/null; sleep 1 2> /dev/null",
        ends: &["exited 0", "exited 1", "exited 2", "timed_out", "oom_killed"],
        says: Exactly(""),
    },
    Attack {
        id: "A13",
        what: "memory of its own without end",
        script: "exec dd if=/dev/zero of=/dev/null bs=90M count=1",
        ends: &["oom_killed"],
        says: Exactly(""),
    },
    Attack {
        id: "A13",
        what: "memory by way of the private copy",
        script: "exec dd if=/dev/zero of=big bs=1M count=90",
        ends: &["oom_killed"],
        says: Exactly(""),
    },
    Attack {
        id: "A14",
        what: "a flood of output",
        script: "rm -f big; exec yes",
        ends: &["output_limit"],
        says: AtMost(64 * 1024),
    },
    Attack {
        id: "A14",
        what: "one line without an end",
        script: "exec dd if=/dev/zero bs=1M",
        ends: &["output_limit"],
        says: AtMost(512 * 1024),
    },
    says(
        "A15",
        "what /proc and /sys tell about the host",
        "/\nsbx\n",
        "cd /proc; for f in kcore keys timer_list timer_stats sched_debug interrupts kallsyms cmdline version modules config.gz latency_stats; do \
         [ \"$(head -c 1 $f 2> /dev/null | wc -c)\" != 0 ] && echo leaks $f; done; \
         for d in /sys/firmware /sys/fs/cgroup /sys/devices /sys/block /sys/class /sys/kernel /sys/module /proc/acpi /proc/scsi /proc/asound /dev/mqueue; do \
         [ -n \"$(ls -A $d 2> /dev/null)\" ] && echo leaks $d; done; cut -d: -f3 /proc/self/cgroup | sort -u; hostname",
    ),
    refused(
        "A16",
        "mounts, namespaces, other roots",
        11,
        "try mount -t tmpfs x /tmp; try mount -t proc x /tmp; try mount -o remount,rw /; try mount --bind / /tmp; \
         try umount /workspace; try unshare -U true; try unshare -m true; try unshare -n true; \
         try nsenter -t 1 -m true; try chroot / true; try pivot_root / /tmp",
    ),
    refused(
        "A16",
        "files of the kernel by which a command would run on the host, or the host would stop",
        10,
        "put() { echo \"$1\" > \"$2\"; }; for f in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hostname \
         /proc/sysrq-trigger /sys/kernel/uevent_helper /sys/fs/cgroup/release_agent /sys/fs/cgroup/memory/memory.limit_in_bytes; do \
         try put x $f; done; try mkdir /sys/fs/cgroup/x; try reboot -f; try dmesg",
    ),
    refused(
        "A17",
        "names to be asked for, by which anything could be told",
        4,
        "try grep . /etc/resolv.conf; try grep . /etc/hosts; try nslookup registry.test; try nslookup registry.test 127.0.0.1",
    ),
    refused(
        "A18",
        "trace its own first process and read its memory; what needs a program is probed by lockdown.rs",
        5,
        "try cat /proc/1/environ; try cat /proc/1/maps; try ls /proc/1/fd; try ls /proc/1/root/; try dd if=/proc/1/mem bs=1 count=1",
    ),
    says(
        "A19",
        "sockets and descriptors that came along",
        "0\n1\n2\nnone\n",
        "for f in 0 1 2 3 4 5 6 7 8 9 10 11 12 20 50 99; do [ -e /proc/$$/fd/$f ] && echo $f; done; \
         find / -type s -not -path '/proc/*' 2> /dev/null | grep . || echo none",
    ),
    says(
        "A20",
        "a forged head of a stream's frame, and then more",
        "\u{1}\0\0\0\u{fffd}\u{fffd}\u{fffd}\u{fffd}after\n",
        "printf '\\001\\000\\000\\000\\377\\377\\377\\360'; echo after; printf '\\002\\000\\000\\000\\377\\377\\377\\377' >&2",
    ),
    says(
        "A21",
        "escapes for the reader's terminal, kept as they are and escaped where they are shown",
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mharness: approved\u{1b}[0m\n",
        "printf '\\033]0;owned\\007\\033[2J\\033[31mharness: approved\\033[0m\\n'",
    ),
    refused(
        "C7",
        "control sockets, metadata and other ways out; the services' ports are tried in network.rs",
        8,
        "for s in /var/run/docker.sock /run/docker.sock /run/containerd/containerd.sock /run/podman/podman.sock; do try ls $s; done; \
         for to in '169.254.169.254 80' '172.17.0.1 22' '1.1.1.1 443' '::1 22'; do try nc -w 1 $to < /dev/null; done",
    ),
    says("C7", "its interfaces", "lo\n", "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"),
    refused(
        "E2",
        "credentials that lie in the workspace",
        2,
        "try cat .env; try cat .git/config.orig",
    ),
    refused(
        "D",
        "writes to anything but the copy and /tmp",
        7,
        "put() { echo x > \"$1\"; }; for f in /x /etc/passwd /bin/sh /.sbx/init /dev/x /workspace/../x /var/x; do try put $f; done",
    ),
    says(
        "F1",
        "children that leave their session and outlive the command",
        "gone\n",
        "setsid sh -c 'trap \"\" TERM HUP; sleep 600 & sleep 600' > /dev/null 2>&1 & echo gone",
    ),
    says(
        "F3",
        "orphans that nobody waits for",
        "reaped\n",
        "i=0; while [ $i -lt 200 ]; do ( true & ); i=$((i+1)); done; echo reaped",
    ),
    Attack {
        id: "F3",
        what: "the end of its own first process",
        script: "kill -9 1; kill -9 -1; echo still here; kill -15 1; sleep 60",
        ends: &["exited 143"],
        says: Exactly("still here\n"),
    },
];
