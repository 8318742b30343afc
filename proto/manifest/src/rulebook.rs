//! The files in force for a session, together: what every decision is made from. Layers only narrow.

use event::Digest;

use crate::action::Action;
use crate::ballot::Side;
use crate::ceiling::Ceiling;
use crate::command::Command;
use crate::decision::{Decision, Layer};
use crate::evaluate::{Evaluator, Target};
use crate::protected::Protected;
use crate::schema::Manifest;

/// A manifest under the ceilings of its organisation and tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rulebook {
    manifest: Manifest,
    organisation: Option<Ceiling>,
    tenant: Option<Ceiling>,
    protected: Protected,
}

impl Rulebook {
    pub fn new(manifest: Manifest, organisation: Option<Ceiling>, tenant: Option<Ceiling>) -> Self {
        let protected = Protected::under(organisation.as_ref(), tenant.as_ref());
        Self { manifest, organisation, tenant, protected }
    }

    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub fn ceiling(&self, layer: Layer) -> Option<&Ceiling> {
        match layer {
            Layer::Organisation => self.organisation.as_ref(),
            Layer::Tenant => self.tenant.as_ref(),
            Layer::Manifest | Layer::System => None,
        }
    }

    /// One action on one subject. Paths, hosts and commands are brought into their normal form first, or
    /// denied; a write is decided as [`Self::decide_write`] of a file does, a command as
    /// [`Self::decide_exec`] does, the strictest of its parts.
    pub fn decide(&self, action: Action, subject: Option<&str>) -> Decision {
        self.evaluator().decide(action, subject)
    }

    /// The whole argv, then each command found inside it about which a rule says something. The strictest
    /// counts.
    pub fn decide_exec(&self, command: &Command) -> Vec<Decision> {
        self.evaluator().decide_exec(command)
    }

    /// A write, with `.git`, `allowed_paths` and the protected paths.
    pub fn decide_write(&self, path: &str, target: Target) -> Decision {
        self.evaluator().decide_write(path, target)
    }

    /// A group of hosts by its pattern: what holds for those of them that no narrower pattern covers.
    pub(crate) fn decide_hosts(&self, pattern: &str) -> Decision {
        self.evaluator().decide_hosts(pattern)
    }

    /// As [`Self::decide`], but never without a person: `rule` is the system's, which asks.
    pub fn decide_asking(&self, action: Action, subject: &str, rule: &str) -> Decision {
        self.evaluator().decide_asking(action, subject, rule)
    }

    /// The ceilings in force, by the digests of their files.
    pub fn policies(&self) -> Vec<(Layer, Digest)> {
        self.ceilings().map(|(layer, ceiling)| (layer, ceiling.digest)).collect()
    }

    pub fn protected(&self) -> &Protected {
        &self.protected
    }

    pub(crate) fn ceilings(&self) -> impl Iterator<Item = (Layer, &Ceiling)> {
        let organisation = self.organisation.iter().map(|ceiling| (Layer::Organisation, ceiling));
        organisation.chain(self.tenant.iter().map(|ceiling| (Layer::Tenant, ceiling)))
    }

    pub(crate) fn sides(&self) -> Vec<Side<'_>> {
        let ceilings =
            self.ceilings().map(|(layer, ceiling)| Side { layer, policy: &ceiling.policy });
        let manifest = Side { layer: Layer::Manifest, policy: &self.manifest.policy };
        ceilings.chain([manifest]).collect()
    }

    fn evaluator(&self) -> Evaluator<'_> {
        Evaluator {
            sides: self.sides(),
            manifest: Some(&self.manifest),
            protected: &self.protected,
            digest: self.manifest.digest,
        }
    }
}
