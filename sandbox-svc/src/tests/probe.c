/* Asks the kernel for what a sandboxed command must not get, and for what it must. One line for each: a name and
 * the error number, 0 where it was granted. It is built static by the test that reads it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *name, long result) {
    printf("%s %d\n", name, result < 0 ? errno : 0);
    fflush(stdout);
}

static void family(const char *kind, int family, int protocol) {
    char name[64];
    snprintf(name, sizeof name, "%s-%d-%d", kind, family, protocol);
    int fd = socket(family, family == 1 || family == 2 || family == 10 ? SOCK_STREAM : SOCK_RAW, protocol);
    tell(name, fd);
    if (fd >= 0) close(fd);
}

#define ASK(name, ...) tell(#name, syscall(SYS_##name, __VA_ARGS__))
#define NR(name, number, ...) tell(#name, syscall(number, __VA_ARGS__))

static int nothing(void *argument) { (void)argument; return 0; }

/* In a child, since the answer to a foreign calling convention may be a signal. */
static void foreign(const char *name, int which) {
    pid_t child = fork();
    if (child == 0) {
        long result = -1;
        errno = EPERM;
#ifdef __x86_64__
        if (which == 0) /* the 32-bit table: getpid */
            __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");
        else /* the x32 table: getpid */
            result = syscall(0x40000000 + SYS_getpid);
#endif
        _exit(result > 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    int granted = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    errno = EPERM;
    tell(name, granted ? 0 : -1);
}

int main(void) {
    char buffer[4096];
    memset(buffer, 0, sizeof buffer);
    for (int number = 0; number < 48; number++) family("socket", number, 0);
    for (int protocol = 1; protocol < 24; protocol++) family("netlink", AF_NETLINK, protocol);
    int pair[2];
    tell("socketpair-1", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    tell("socketpair-40", socketpair(40, SOCK_STREAM, 0, pair));

    NR(io_uring_setup, 425, 1, buffer);
    NR(io_uring_enter, 426, 0, 0, 0, 0, 0, 0);
    NR(io_uring_register, 427, 0, 0, 0, 0);
    ASK(ptrace, PTRACE_TRACEME, 0, 0, 0);
    ASK(process_vm_readv, getpid(), 0, 0, 0, 0, 0);
    ASK(process_vm_writev, getpid(), 0, 0, 0, 0, 0);
    ASK(keyctl, 0, -3, 0, 0, 0);
    ASK(add_key, "user", "a", "b", 1, -3);
    ASK(request_key, "user", "a", 0, -3);
    ASK(bpf, BPF_PROG_LOAD, buffer, 64);
    ASK(userfaultfd, 1);
    NR(memfd_secret, 447, 0);
    ASK(perf_event_open, buffer, 0, -1, -1, 0);
    ASK(kcmp, getpid(), getpid(), 0, 0, 0);
    NR(pidfd_getfd, 438, 0, 0, 0);
    NR(process_madvise, 440, 0, 0, 0, 0, 0);
    ASK(name_to_handle_at, -100, "/", buffer, buffer + 512, 0);
    ASK(open_by_handle_at, -100, buffer, 0);
    ASK(fanotify_init, 0, 0);
    ASK(vmsplice, 1, 0, 0, 0);
    ASK(remap_file_pages, 0, 0, 0, 0, 0);
    ASK(personality, 0xffffffff);
    ASK(io_setup, 1, buffer);
    ASK(mq_open, "/a", 0, 0, 0);
    ASK(mbind, 0, 0, 0, 0, 0, 0);
    ASK(set_mempolicy, 0, 0, 0);
    ASK(move_pages, 0, 0, 0, 0, 0, 0);
    ASK(migrate_pages, 0, 0, 0, 0);
    ASK(quotactl, 0, 0, 0, 0);
    ASK(clock_adjtime, 0, buffer);
    ASK(adjtimex, buffer);
    ASK(clock_settime, 0, buffer);
    ASK(settimeofday, buffer, 0);
    ASK(acct, 0);
    ASK(vhangup, 0);
    ASK(syslog, 3, buffer, sizeof buffer);
    ASK(sethostname, "x", 1);
    ASK(setdomainname, "x", 1);
    ASK(reboot, 0, 0, 0, 0);
    ASK(kexec_load, 0, 0, 0, 0);
    ASK(init_module, 0, 0, 0);
    ASK(finit_module, 0, 0, 0);
    ASK(delete_module, 0, 0);
    ASK(swapon, "/x", 0);
    ASK(chroot, "/tmp");
    ASK(mount, "none", "/tmp", "tmpfs", 0, 0);
    ASK(umount2, "/tmp", 0);
    ASK(pivot_root, "/tmp", "/tmp");
    NR(open_tree, 428, -100, "/", 1);
    NR(move_mount, 429, -1, "", -1, "", 0);
    NR(fsopen, 430, "tmpfs", 0);
    NR(fsconfig, 431, -1, 0, 0, 0, 0);
    NR(fsmount, 432, -1, 0, 0);
    NR(fspick, 433, -100, "/", 0);
    NR(mount_setattr, 442, -100, "/", 0, buffer, 32);
    ASK(setns, 0, 0);
#ifdef __x86_64__
    ASK(iopl, 3);
    ASK(ioperm, 0, 1, 1);
    ASK(modify_ldt, 0, buffer, 16);
    foreign("int80", 0);
    foreign("x32", 1);
#endif
    const struct { const char *name; unsigned long flag; } spaces[] = {
        {"mnt", CLONE_NEWNS}, {"cgroup", CLONE_NEWCGROUP}, {"uts", CLONE_NEWUTS}, {"ipc", CLONE_NEWIPC},
        {"user", CLONE_NEWUSER}, {"pid", CLONE_NEWPID}, {"net", CLONE_NEWNET}, {"time", 0x80},
    };
    static char stack[65536];
    for (unsigned at = 0; at < sizeof spaces / sizeof *spaces; at++) {
        char name[64];
        snprintf(name, sizeof name, "unshare-%s", spaces[at].name);
        tell(name, syscall(SYS_unshare, spaces[at].flag));
        /* clone has no flag for time: those bits are the signal. */
        if (spaces[at].flag == 0x80) continue;
        snprintf(name, sizeof name, "clone-%s", spaces[at].name);
        int child = clone(nothing, stack + sizeof stack, spaces[at].flag | SIGCHLD, 0);
        tell(name, child);
        if (child > 0) waitpid(child, 0, 0);
    }
    NR(clone3, 435, buffer, 88);
    tell("mknod-char", mknod("n", S_IFCHR | 0600, 0x0103));
    tell("mknod-block", mknod("b", S_IFBLK | 0600, 0x0800));
    tell("mknod-fifo", mknod("f", S_IFIFO | 0600, 0));
    int child = clone(nothing, stack + sizeof stack, SIGCHLD, 0);
    tell("clone", child);
    if (child > 0) waitpid(child, 0, 0);
    tell("kill-1", kill(1, SIGKILL));
    tell("ptrace-1", open("/proc/1/mem", 0) < 0 ? -1 : 0);
    return 0;
}
