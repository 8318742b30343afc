//! Programs that start the command that follows in their own argv, and which of their options take a value. It
//! finds where that command begins.

use super::Inner;
use super::programs::{argv, scripts};
use crate::shell::is_assignment;

/// How one such program reads its argv.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    /// Letters whose value follows.
    letters: &'static str,
    /// Long options whose value may follow as a word of its own.
    longs: &'static str,
    /// Words before the command.
    operands: usize,
    /// It hands the words to a shell, joined.
    pub(super) joins: bool,
}

const fn plain(name: &'static str) -> Wrapper {
    Wrapper { name, letters: "", longs: "", operands: 0, joins: false }
}

const fn with(name: &'static str, letters: &'static str, longs: &'static str) -> Wrapper {
    Wrapper { name, letters, longs, operands: 0, joins: false }
}

const fn after(
    operands: usize,
    name: &'static str,
    letters: &'static str,
    longs: &'static str,
) -> Wrapper {
    Wrapper { name, letters, longs, operands, joins: false }
}

const fn joining(
    operands: usize,
    name: &'static str,
    letters: &'static str,
    longs: &'static str,
) -> Wrapper {
    Wrapper { name, letters, longs, operands, joins: true }
}

const WRAPPERS: &[Wrapper] = &[
    plain("builtin"),
    plain("bunx"),
    plain("catatonit"),
    plain("catchsegv"),
    plain("chronic"),
    plain("command"),
    plain("cttyhack"),
    plain("eatmydata"),
    plain("entr"),
    plain("i386"),
    plain("ifne"),
    plain("linux32"),
    plain("linux64"),
    plain("nohup"),
    plain("pnpx"),
    plain("unbuffer"),
    plain("valgrind"),
    with("chpst", "uUbemdofpcr/", ""),
    with("daemonize", "acepluoL", ""),
    with("dbus-run-session", "", "config-file dbus-daemon"),
    with("doas", "uC", ""),
    with("dumb-init", "r", "rewrite"),
    with("exec", "a", ""),
    with("fakeroot", "lfsib", "lib faked"),
    with("firejail", "", ""),
    with("ionice", "cnpPu", "class classdata pid pgid uid"),
    with("ltrace", "eopsSaAlnuwxF", ""),
    with("nice", "n", "adjustment"),
    with("npx", "pc", "package call"),
    with("openvt", "c", "console"),
    with("softlimit", "acdflmnoprst", ""),
    with("nsenter", "tSGW", "target setuid setgid wdns"),
    with("pkexec", "u", "user"),
    with("prlimit", "p", "pid"),
    with("proot", "rbwqk", "rootfs bind cwd qemu kernel-release"),
    with("proxychains", "f", ""),
    with("rlwrap", "bCfHlqsStzPpg", ""),
    with(
        "setpriv",
        "",
        "reuid regid groups inh-caps ambient-caps bounding-set securebits pdeathsig \
        selinux-label apparmor-profile landlock-access landlock-rule ptracer",
    ),
    with("setsid", "", ""),
    with("stdbuf", "ioe", "input output error"),
    with("strace", "eopsSaEPuIXbO", "trace output attach user env"),
    with(
        "sudo",
        "ughpCrtTUDR",
        "user group host prompt close-from role type command-timeout other-user chdir chroot",
    ),
    with("systemd-run", "pEtuMHC", "property setenv unit slice uid gid nice working-directory"),
    with("time", "fo", "format output"),
    with("tini", "pe", ""),
    with("torsocks", "aPup", "address port user pass"),
    with("unshare", "SGRw", "setuid setgid root wd map-user map-group map-users map-groups"),
    with("uvx", "pw", "from with python directory project"),
    with("xargs", "InPLsEda", "arg-file delimiter max-args max-chars max-procs process-slot-var"),
    with("xvfb-run", "enfsapw", "auth-file error-file server-num server-args wait"),
    after(1, "chroot", "", "groups userspec"),
    after(1, "envdir", "", ""),
    after(1, "envuidgid", "", ""),
    after(1, "switch_root", "c", ""),
    after(1, "chrt", "TPD", "sched-runtime sched-deadline sched-period"),
    after(1, "faketime", "", ""),
    after(1, "flock", "wE", "timeout wait conflict-exit-code"),
    after(1, "gosu", "", ""),
    after(1, "setarch", "", ""),
    after(1, "setuidgid", "", ""),
    after(1, "su-exec", "", ""),
    after(1, "taskset", "", ""),
    after(1, "timeout", "ks", "kill-after signal"),
    joining(0, "parallel", "jNnLdIaS", "jobs max-args arg-file sshlogin delimiter results joblog"),
    joining(0, "watch", "n", "interval"),
    joining(1, "rsh", "lp", ""),
    joining(1, "ssh", "BbcDEeFIiJLlmOopQRSWw", ""),
];

pub(super) fn find(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

/// The dynamic linker starts the program that follows.
pub(super) const LINKER: Wrapper =
    with("ld.so", "", "library-path preload inhibit-rpath audit argv0 glibc-hwcaps-prepend");

pub(super) const RUNUSER: Wrapper = with(
    "runuser",
    "ugGcsw",
    "user group supp-group command session-command shell whitelist-environment",
);
pub(super) const SCRIPT: Wrapper =
    with("script", "cIOBTEmot", "command log-in log-out log-io log-timing echo output-limit");

/// Options without a value, by program: letters and long ones. With any other it is not certain where the
/// command begins.
const FLAGS: &[(&str, &str, &str)] = &[
    ("builtin", "", ""),
    ("command", "pvV", ""),
    ("doas", "nLs", ""),
    ("exec", "cl", ""),
    ("flock", "senoux", "shared exclusive nonblock unlock close no-fork verbose"),
    ("ionice", "t", "ignore"),
    ("nice", "0123456789", ""),
    ("setsid", "cfw", "ctty fork wait"),
    ("strace", "cCdfFhiqrtTvVyYzZk0123456789", ""),
    ("sudo", "nEHbkPAS", "non-interactive set-home background askpass stdin"),
    ("time", "pvaq", "portability verbose append quiet"),
    ("timeout", "vfp", "foreground preserve-status verbose"),
    (
        "unshare",
        "rmuinpUCTfc",
        "fork map-root-user map-current-user mount uts ipc net pid user cgroup time",
    ),
    ("watch", "betdgcpqwx", "beep errexit no-title differences chgexit color precise exec"),
    ("xargs", "0rtxo", "null no-run-if-empty verbose exit open-tty"),
];
/// They run nothing when no command is given.
const HARMLESS_ALONE: [&str; 6] = ["builtin", "command", "exec", "nice", "time", "nohup"];
/// They add words that are not in their argv, or run something elsewhere.
const ADDS: [&str; 6] = ["xargs", "parallel", "entr", "ssh", "rsh", "ifne"];

impl Wrapper {
    /// What it runs, as far as that can be told.
    pub(super) fn inner(&self, arguments: &[String]) -> Vec<Inner> {
        let command = self.command(arguments);
        let mut inner =
            if self.joins { vec![Inner::Script(command.join(" "))] } else { argv(command) };
        inner.extend(scripts(arguments, 'c', "--command").map(Inner::Script));
        let before = &arguments[..arguments.len() - command.len()];
        if !before.iter().all(|word| self.is_known(word)) {
            inner.push(Inner::Unknown("where the command begins is not certain"));
        }
        if command.is_empty() && !HARMLESS_ALONE.contains(&self.name) {
            inner.push(Inner::Unknown("no command follows"));
        }
        if ADDS.contains(&self.name) {
            inner.push(Inner::Opaque("some of what it runs is not in its argv"));
        }
        inner
    }

    /// Whether it is clear if the next word is this one's value.
    fn is_known(&self, word: &str) -> bool {
        let flags = FLAGS.iter().find(|(name, ..)| *name == self.name);
        let (letters, longs) = flags.map_or(("", ""), |(_, letters, longs)| (letters, longs));
        if let Some(long) = word.strip_prefix("--") {
            let known = || longs.split_ascii_whitespace().any(|known| known == long);
            return long.is_empty() || long.contains('=') || self.takes(word) || known();
        }
        let Some(cluster) = word.strip_prefix('-') else { return true };
        let valued = cluster.find(|letter| self.letters.contains(letter));
        cluster[..valued.unwrap_or(cluster.len())].chars().all(|letter| letters.contains(letter))
    }

    /// The command inside the arguments.
    pub(super) fn command<'a>(&self, arguments: &'a [String]) -> &'a [String] {
        let mut rest = arguments;
        let mut operands = self.operands;
        let mut options = true;
        while let Some((first, others)) = rest.split_first() {
            let taken = match first.as_str() {
                "--" if options => {
                    options = false;
                    1
                }
                long if options && long.starts_with("--") => 1 + usize::from(self.takes(long)),
                // A lone `-` is an option or nothing: no program has that name.
                short if options && short.starts_with('-') => {
                    1 + usize::from(self.ends_in_valued(short))
                }
                // Only some of them read these, and none has a program of such a name.
                assignment if is_assignment(assignment) => 1,
                _ if operands > 0 => {
                    operands -= 1;
                    1
                }
                _ => return rest,
            };
            rest = others.get(taken - 1..).unwrap_or_default();
        }
        rest
    }

    /// Whether the value of a long option, which may be shortened, is the next word.
    fn takes(&self, long: &str) -> bool {
        let name = long.trim_start_matches('-');
        !name.is_empty()
            && !long.contains('=')
            && self.longs.split_ascii_whitespace().any(|known| known.starts_with(name))
    }

    /// Whether the value of the first letter that has one is the next word.
    fn ends_in_valued(&self, short: &str) -> bool {
        short
            .char_indices()
            .skip(1)
            .find(|(_, letter)| self.letters.contains(*letter))
            .is_some_and(|(at, letter)| at + letter.len_utf8() == short.len())
    }
}
