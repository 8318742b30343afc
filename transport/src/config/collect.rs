//! Merges file, environment and flags under clap and collects every fault instead of the first; it knows no service's settings.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::PathBuf,
};

use clap::{
    Arg, ArgAction, ArgMatches, Args as _, Command,
    error::{ContextKind, ContextValue, ErrorKind},
};

use super::{Exit, config_flag, file};
use crate::{Args, Service};

/// No set of arguments has this many faults; a repair that repairs nothing must not loop.
const MOST_FAULTS: usize = 200;

pub(super) struct Sources {
    prefix: String,
    command: Command,
    args: Vec<OsString>,
    /// Where a flag's present default comes from, when it is not our own.
    origins: BTreeMap<String, String>,
    faults: Vec<String>,
    /// Flags without a usable value.
    broken: BTreeSet<String>,
    /// Flags that now accept anything, so that the others can be read.
    relaxed: BTreeSet<String>,
}

/// The best reading of all sources.
pub(super) struct Found {
    pub(super) matches: ArgMatches,
    pub(super) faults: Vec<String>,
    /// Every flag has a value that parsed, or may go without.
    pub(super) whole: bool,
    /// The same for the shared flags alone.
    pub(super) tls_known: bool,
}

impl Sources {
    pub(super) fn new(service: Service, command: Command, args: Vec<OsString>) -> Self {
        let prefix = format!("HARNESS_{}_", constant(service.as_str()));
        let name = format!("harness-{service}");
        let note = format!(
            "Each flag can also be set in the environment as {prefix}<FLAG> and in the file as a key of the same name; \
             flags win over the environment, and it wins over the file."
        );
        let command = command
            .name(name.clone())
            .bin_name(name)
            .after_help(note)
            .arg(
                Arg::new("config")
                    .long("config")
                    .value_name("FILE")
                    .value_parser(clap::value_parser!(PathBuf))
                    .help("TOML file whose keys are the flags below"),
            )
            .arg(
                Arg::new("check-config")
                    .long("check-config")
                    .action(ArgAction::SetTrue)
                    .help("Tell every fault of the configuration and exit"),
            );
        Self {
            prefix,
            command,
            args,
            origins: BTreeMap::new(),
            faults: Vec::new(),
            broken: BTreeSet::new(),
            relaxed: BTreeSet::new(),
        }
    }

    /// Makes the file's values the defaults.
    pub(super) fn read_file(&mut self, env: &dyn Fn(&str) -> Option<OsString>) {
        let named = config_flag(&self.args);
        let Some(path) =
            named.or_else(|| env(&format!("{}CONFIG", self.prefix)).map(PathBuf::from))
        else {
            return;
        };
        let file::Settings { values, faults } = file::read(&path);
        self.faults.extend(faults);
        for (key, texts) in values {
            let known = self.flags().any(|flag| flag == key);
            if known {
                let values = texts.into_iter().map(OsString::from).collect();
                self.set_default(&key, values, path.display().to_string());
            } else {
                let hint = self.suggestion(&key);
                self.faults.push(format!("{}: unknown key {key}{hint}", path.display()));
            }
        }
    }

    /// Makes the environment's values the defaults, over those of the file. Names that no flag has are left alone, because
    /// orchestrators put names of their own beside ours.
    pub(super) fn read_environment(&mut self, env: &dyn Fn(&str) -> Option<OsString>) {
        let flags: Vec<String> = self.flags().map(str::to_owned).collect();
        for flag in flags {
            let name = format!("{}{}", self.prefix, constant(&flag));
            if let Some(value) = env(&name) {
                let values = match (self.takes_many(&flag), value.to_str()) {
                    (true, Some("")) => Vec::new(),
                    (true, Some(text)) => text.split(',').map(OsString::from).collect(),
                    _ => vec![value],
                };
                self.set_default(&flag, values, name);
            }
        }
    }

    /// Lets clap read the flags again and again, each time without what it complained about last.
    pub(super) fn matches(mut self) -> Result<Found, Exit> {
        loop {
            match self.command.clone().try_get_matches_from(&self.args) {
                Ok(matches) => return Ok(self.found(matches)),
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
                    ) =>
                {
                    return Err(Exit::Done(error.to_string()));
                }
                Err(error) => {
                    let repaired = self.repair(&error);
                    if !repaired || self.faults.len() > MOST_FAULTS {
                        return Err(Exit::Faulty(self.faults));
                    }
                }
            }
        }
    }

    fn found(self, matches: ArgMatches) -> Found {
        let shared = Args::augment_args(Command::new("shared"));
        let tls_known = shared
            .get_arguments()
            .filter_map(Arg::get_long)
            .all(|flag| !self.broken.contains(flag));
        Found { matches, faults: self.faults, whole: self.broken.is_empty(), tls_known }
    }

    /// Notes the fault and takes it out of the way; false when that cannot be done.
    fn repair(&mut self, error: &clap::Error) -> bool {
        match error.kind() {
            ErrorKind::MissingRequiredArgument => {
                let flags = strings(error, ContextKind::InvalidArg)
                    .into_iter()
                    .filter_map(|it| flag_of(&it));
                flags.fold(false, |_, flag| self.excuse(&flag))
            }
            ErrorKind::ValueValidation | ErrorKind::InvalidValue | ErrorKind::InvalidUtf8 => {
                match strings(error, ContextKind::InvalidArg).iter().find_map(|it| flag_of(it)) {
                    Some(flag) => self.accept_anything(&flag, error),
                    None => self.give_up(error),
                }
            }
            ErrorKind::UnknownArgument => match strings(error, ContextKind::InvalidArg).pop() {
                Some(arg) => self.remove(&arg, error),
                None => self.give_up(error),
            },
            _ => self.give_up(error),
        }
    }

    fn give_up(&mut self, error: &clap::Error) -> bool {
        self.faults.push(sentence(error));
        false
    }

    fn excuse(&mut self, flag: &str) -> bool {
        self.faults.push(format!(
            "--{flag} is missing; give the flag, {}{} or {flag} in the file",
            self.prefix,
            constant(flag)
        ));
        self.broken.insert(flag.to_owned());
        self.change(flag, |arg| arg.required(false))
    }

    fn accept_anything(&mut self, flag: &str, error: &clap::Error) -> bool {
        if !self.relaxed.insert(flag.to_owned()) {
            // It has no value at all, and the flag itself is in the way.
            return self.take_out(&format!("--{flag}"));
        }
        let origin = self.origins.get(flag).filter(|_| !self.on_command_line(flag));
        self.faults.push(match origin {
            Some(origin) => format!("{origin}: {}", sentence(error)),
            None => sentence(error),
        });
        self.broken.insert(flag.to_owned());
        self.change(flag, |arg| match arg.get_action() {
            ArgAction::SetTrue => arg.default_value("false"),
            _ => arg.value_parser(clap::value_parser!(OsString)),
        })
    }

    fn remove(&mut self, arg: &str, error: &clap::Error) -> bool {
        let hint = strings(error, ContextKind::SuggestedArg).pop();
        let hint = hint.map(|it| format!("; did you mean {it}?")).unwrap_or_default();
        self.faults.push(format!("unknown argument {arg}{hint}"));
        self.take_out(arg)
    }

    /// Removes an argument together with the value that follows it.
    fn take_out(&mut self, arg: &str) -> bool {
        let with_value = format!("{arg}=");
        let is_it =
            |it: &OsString| it == arg || it.to_str().is_some_and(|it| it.starts_with(&with_value));
        let Some(at) = self.args.iter().skip(1).position(is_it).map(|at| at + 1) else {
            return false;
        };
        let removed = self.args.remove(at);
        let follows = self
            .args
            .get(at)
            .and_then(|next| next.to_str())
            .is_some_and(|next| !next.starts_with('-'));
        if follows && arg.starts_with('-') && removed == arg {
            self.args.remove(at);
        }
        true
    }

    fn flags(&self) -> impl Iterator<Item = &str> {
        let ours = |flag: &&str| !matches!(*flag, "config" | "check-config" | "help" | "version");
        self.command.get_arguments().filter_map(Arg::get_long).filter(ours)
    }

    fn arg(&self, flag: &str) -> Option<&Arg> {
        self.command.get_arguments().find(|arg| arg.get_long() == Some(flag))
    }

    fn takes_many(&self, flag: &str) -> bool {
        self.arg(flag).is_some_and(|arg| matches!(arg.get_action(), ArgAction::Append))
    }

    fn on_command_line(&self, flag: &str) -> bool {
        let (alone, with_value) = (format!("--{flag}"), format!("--{flag}="));
        self.args
            .iter()
            .filter_map(|arg| arg.to_str())
            .any(|arg| arg == alone || arg.starts_with(&with_value))
    }

    fn set_default(&mut self, flag: &str, mut values: Vec<OsString>, origin: String) {
        if values.len() > 1 && !self.takes_many(flag) {
            self.faults.push(format!("{origin}: {flag} takes one value, not a list"));
            self.broken.insert(flag.to_owned());
            values.truncate(1);
        }
        self.change(flag, |arg| match values.is_empty() {
            true => arg.default_values(values),
            false => arg.required(false).default_values(values),
        });
        self.origins.insert(flag.to_owned(), origin);
    }

    fn change(&mut self, flag: &str, change: impl FnOnce(Arg) -> Arg) -> bool {
        let Some(id) = self.arg(flag).map(|arg| arg.get_id().clone()) else { return false };
        let command = std::mem::take(&mut self.command);
        self.command = command.mut_arg(id, change);
        true
    }

    fn suggestion(&self, key: &str) -> String {
        let name = OsString::from("harness");
        let tried = self.command.clone().try_get_matches_from([name, format!("--{key}").into()]);
        let hint = tried.err().and_then(|error| strings(&error, ContextKind::SuggestedArg).pop());
        match hint.as_deref().and_then(flag_of) {
            Some(flag) => format!("; did you mean {flag}?"),
            None => "; --help lists the flags, which are the keys".to_owned(),
        }
    }
}

/// `agent-svc` as it stands in an environment variable's name.
fn constant(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

/// clap names a flag as `--listen <ADDR>` or `--flag`.
fn flag_of(shown: &str) -> Option<String> {
    let end = shown.find([' ', '=', '[']).unwrap_or(shown.len());
    shown[..end].strip_prefix("--").map(str::to_owned)
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(many)) => many.clone(),
        _ => Vec::new(),
    }
}

/// The first paragraph of what clap says, on one line.
pub(super) fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").map_or_else(|| line.clone(), str::to_owned)
}
