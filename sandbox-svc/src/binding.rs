//! What a run's private copy is bound to. A copy that an earlier process made is taken up again only when every binding
//! is what it was; one that differs makes the copy lost, by name.

use std::fmt;
use std::os::unix::ffi::OsStrExt as _;

use event::Digest;
use event::id::SessionId;
use manifest::Layer;
use serde::{Deserialize, Serialize};

use crate::engine::ImageError;
use crate::error::Error;
use crate::image::ImageName;
use crate::sandbox::Sandbox;
use crate::session::Session;
use crate::staging::Place;
use crate::tree::Dir;

/// One thing that a copy is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// The host's boot: a tmpfs does not outlive it.
    Boot,
    /// Where copies live.
    Staging,
    /// The directory or mount that the copy is.
    Copy,
    Session,
    /// The workspace's name, its canonical path, and the directory there.
    Workspace,
    Manifest,
    /// The ceilings above the manifest, and what the host carries anyway.
    Policy,
    /// The image that the manifest's name stands for.
    Image,
}

impl Binding {
    pub(crate) const ALL: [Self; 8] = [
        Self::Boot,
        Self::Staging,
        Self::Copy,
        Self::Session,
        Self::Workspace,
        Self::Manifest,
        Self::Policy,
        Self::Image,
    ];

    /// Stable, for the store and for callers.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Boot => "boot",
            Self::Staging => "staging",
            Self::Copy => "copy",
            Self::Session => "session",
            Self::Workspace => "workspace",
            Self::Manifest => "manifest",
            Self::Policy => "policy",
            Self::Image => "image",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|binding| binding.as_str() == text)
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As they were when the copy was made. Run, staging and boot have columns of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Bindings {
    session: SessionId,
    copy: (u64, u64, i64, u32),
    workspace: String,
    /// Canonical, in hex.
    path: String,
    directory: (u64, u64),
    manifest: String,
    policies: Vec<(String, String)>,
    carry: Vec<String>,
    /// Missing where the manifest names none, or the engine had none of that name.
    image: Option<String>,
}

impl Bindings {
    /// As things are now; or what is no longer there.
    pub(crate) async fn of(
        sandbox: &Sandbox,
        session: &Session,
        place: &Place,
    ) -> Result<Result<Self, Binding>, Error> {
        let Ok(host) = sandbox.sessions.workspace(session).cloned() else {
            return Ok(Err(Binding::Workspace));
        };
        let Ok(rulebook) = sandbox.sessions.rulebook(session) else {
            return Ok(Err(Binding::Policy));
        };
        let copy = place.copy();
        let looked = tokio::task::spawn_blocking(move || {
            let identity = |dir: Dir| dir.meta().map(|meta| meta.identity());
            let there = host.canonicalize().and_then(|path| {
                let directory = Dir::open(&path).and_then(identity)?;
                Ok((hex::encode(path.as_os_str().as_bytes()), directory))
            });
            (there, Dir::open(&copy).and_then(|dir| dir.birth()))
        });
        let (there, copy) = looked.await?;
        let Ok((path, directory)) = there else { return Ok(Err(Binding::Workspace)) };
        let Ok(copy) = copy else { return Ok(Err(Binding::Copy)) };
        let policies = rulebook.policies();
        let text =
            |(layer, digest): (Layer, Digest)| (layer.as_str().to_owned(), digest.to_string());
        Ok(Ok(Self {
            session: session.id,
            copy,
            workspace: session.grant.workspace.clone(),
            path,
            directory,
            manifest: session.grant.manifest.to_string(),
            policies: policies.into_iter().map(text).collect(),
            carry: sandbox.carried_anyway(session).patterns().to_vec(),
            image: image(sandbox, session).await?,
        }))
    }

    /// The first that is not what it was.
    pub(crate) fn differing(&self, now: &Self) -> Option<Binding> {
        let Self { session, copy, workspace, path, directory, manifest, policies, carry, image } =
            self;
        let same = [
            (Binding::Session, *session == now.session),
            (Binding::Copy, *copy == now.copy),
            (
                Binding::Workspace,
                *workspace == now.workspace && *path == now.path && *directory == now.directory,
            ),
            (Binding::Manifest, *manifest == now.manifest),
            (Binding::Policy, *policies == now.policies && *carry == now.carry),
            (Binding::Image, *image == now.image),
        ];
        same.into_iter().find_map(|(binding, same)| (!same).then_some(binding))
    }
}

async fn image(sandbox: &Sandbox, session: &Session) -> Result<Option<String>, Error> {
    let name = session.manifest.execution.image.as_deref().and_then(ImageName::parse);
    let (Some(engine), Some(name)) = (&sandbox.engine, name) else { return Ok(None) };
    match engine.image(&name).await {
        Ok(image) => Ok(Some(image.id.to_string())),
        Err(ImageError::Unknown | ImageError::Refused(_)) => Ok(None),
        Err(ImageError::Engine(error)) => {
            Err(Error::engine("the image cannot be inspected")(error))
        }
    }
}

#[cfg(test)]
mod tests {
    use event::id::SessionId;

    use super::{Binding, Bindings};

    fn bindings() -> Bindings {
        Bindings {
            session: SessionId::nil(),
            copy: (1, 2, 3, 4),
            workspace: "demo".to_owned(),
            path: "2f737276".to_owned(),
            directory: (3, 4),
            manifest: "sha256:m".to_owned(),
            policies: vec![("organisation".to_owned(), "sha256:p".to_owned())],
            carry: vec!["tests/*.pem".to_owned()],
            image: Some("sha256:i".to_owned()),
        }
    }

    #[test]
    fn every_binding_that_differs_is_named() {
        let text = |text: &str| text.to_owned();
        let cases = [
            (Bindings { session: SessionId::new(), ..bindings() }, Binding::Session),
            (Bindings { copy: (1, 2, 3, 5), ..bindings() }, Binding::Copy),
            (Bindings { workspace: text("other"), ..bindings() }, Binding::Workspace),
            (Bindings { path: text("2f6f74"), ..bindings() }, Binding::Workspace),
            (Bindings { directory: (3, 5), ..bindings() }, Binding::Workspace),
            (Bindings { manifest: text("sha256:n"), ..bindings() }, Binding::Manifest),
            (Bindings { policies: Vec::new(), ..bindings() }, Binding::Policy),
            (Bindings { carry: Vec::new(), ..bindings() }, Binding::Policy),
            (Bindings { image: None, ..bindings() }, Binding::Image),
        ];
        for (now, expected) in cases {
            assert_eq!(bindings().differing(&now), Some(expected), "{now:?}");
        }
        assert_eq!(bindings().differing(&bindings()), None);
    }

    #[test]
    fn bindings_survive_their_stored_form() {
        let stored = serde_json::to_string(&bindings()).unwrap();
        assert_eq!(serde_json::from_str::<Bindings>(&stored).unwrap(), bindings());
        for binding in Binding::ALL {
            assert_eq!(Binding::parse(binding.as_str()), Some(binding));
        }
    }
}
