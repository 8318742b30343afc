//! What an administrator writes above every manifest: rules that only narrow, and the list of protected paths.
//! It never allows what a manifest does not.

use event::Digest;

use crate::ballot::Side;
use crate::decision::Layer;
use crate::evaluate::Evaluator;
use crate::execution::{Mode, optional};
use crate::fault::Faults;
use crate::fields::Reader;
use crate::policy::Policy;
use crate::policy_test::{self, PolicyTest};
use crate::protected::Protected;
use crate::tree::Node;
use crate::{allowed, rules, source};

pub(crate) const CEILING_KEYS: [&str; 8] =
    ["kind", "id", "title", "permissions", "hard_deny", "approvers", "tests", "protected_paths"];

/// A ceiling file. About an action without a rule it has no opinion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// Kebab case.
    pub id: String,
    pub title: Option<String>,
    pub policy: Policy,
    pub tests: Vec<PolicyTest>,
    /// Instead of the built-in list; empty protects nothing.
    pub protected_paths: Option<Vec<String>>,
    /// SHA-256 of the file's bytes.
    pub digest: Digest,
}

impl Ceiling {
    /// Strict; `file` is only named in faults.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, Faults> {
        let mut reader = Reader::new(file, "the ceiling");
        let ceiling = source::tree(&mut reader, bytes, "kind: ceiling and an id")
            .and_then(|tree| read(&mut reader, &tree, Digest::of(bytes)));
        // Examples of half a file say nothing.
        if let Some(ceiling) = ceiling.as_ref().filter(|_| reader.is_content()) {
            let protected = Protected::under(Some(ceiling), None);
            policy_test::run(&mut reader, &ceiling.tests, &ceiling.alone(&protected));
        }
        reader.finish(ceiling)
    }

    /// Judged without a manifest.
    pub(crate) fn alone<'p>(&'p self, protected: &'p Protected) -> Evaluator<'p> {
        Evaluator {
            sides: vec![Side { layer: Layer::Organisation, policy: &self.policy }],
            manifest: None,
            protected,
            digest: self.digest,
        }
    }
}

fn read(reader: &mut Reader<'_>, tree: &Node, digest: Digest) -> Option<Ceiling> {
    let table = reader.table("", tree, &CEILING_KEYS)?;
    let kind =
        reader.required(&table, "kind").and_then(|field| reader.one_of(&field, &[("ceiling", ())]));
    let id = reader.required(&table, "id").and_then(|field| rules::kebab(reader, &field));
    let title = optional(&table, "title", None, |field| reader.text(field).map(Some));
    let policy = rules::policy(reader, &table);
    let tests = optional(&table, "tests", Vec::new(), |field| policy_test::read(reader, field));
    let protected_paths = optional(&table, "protected_paths", None, |field| {
        allowed::read(reader, field, Mode::Snapshot, true).map(Some)
    });
    kind?;
    Some(Ceiling {
        id: id?,
        title: title?,
        policy: policy?,
        tests: tests?,
        protected_paths: protected_paths?,
        digest,
    })
}
