//! How a command's container is made: from the plan and the run's private copy, under the one name of the call's
//! attempt. A container of that name that is not ours is left alone.

use event::MountMode;
use uuid::Uuid;

use crate::engine::init::Installed;
use crate::engine::{
    Bind, ContainerId, ContainerName, Created, EngineError, Handle, Image, Inspected, Limits, Spec,
};
use crate::environment::Environment;
use crate::exec::{INSTANCE_LABEL, LEASE_LABEL, OWNER, OWNER_LABEL, Run, Unsettled, cause_of};
use crate::sandbox::Sandbox;
use crate::session::Session;

/// What programs ask for a name; there is nobody to ask.
const RESOLVERS: &str = "/etc/resolv.conf";

impl Run<'_> {
    /// A cause instead of an id when the engine will not make the container.
    pub(super) async fn create(
        &self,
        spec: &Spec,
    ) -> Result<Result<ContainerId, String>, Unsettled> {
        for _ in 0..2 {
            match self.engine.create(spec).await {
                Ok(Created::Made(id)) => return Ok(Ok(id)),
                // A create of an earlier process whose answer was lost, or somebody else's.
                Ok(Created::NameTaken) => match self
                    .inspect_surely(Handle::Name(&spec.name))
                    .await?
                {
                    Some(seen) if self.is_ours(&seen) => self.remove(&seen.id).await?,
                    Some(_) => return Ok(Err("a container of that name is not ours".to_owned())),
                    None => (),
                },
                Err(EngineError::NotLockedDown(field)) => {
                    return Ok(Err(format!("the engine did not lock the container down: {field}")));
                }
                Err(error @ EngineError::Refused { .. }) => return Ok(Err(cause_of(&error))),
                Err(error) => {
                    // It may have been made all the same.
                    if let Some(seen) = self.inspect_surely(Handle::Name(&spec.name)).await?
                        && self.is_ours(&seen)
                    {
                        self.remove(&seen.id).await?;
                    }
                    return Ok(Err(cause_of(&error)));
                }
            }
        }
        Ok(Err("the container's name stays taken".to_owned()))
    }

    pub(super) fn spec(&self, environment: &Environment, image: &Image, binds: Vec<Bind>) -> Spec {
        let made = Made {
            sandbox: self.sandbox,
            session: self.session,
            environment,
            image,
            limits: self.limits,
        };
        let mut spec = made.spec(self.name(), self.row.lease, binds);
        spec.labels.extend([
            ("harness.call".to_owned(), self.call().to_string()),
            ("harness.attempt".to_owned(), self.row.attempt.to_string()),
        ]);
        spec
    }

    pub(super) fn is_ours(&self, seen: &Inspected) -> bool {
        let label = |name: &str| seen.labels.get(name).map(String::as_str);
        label(OWNER_LABEL) == Some(OWNER)
            && label(INSTANCE_LABEL) == Some(&self.sandbox.instance.to_string())
            && label(LEASE_LABEL) == Some(&self.row.lease.to_string())
    }
}

/// What every container of a run is made from, whichever call it is for.
pub(crate) struct Made<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) session: &'a Session,
    pub(crate) environment: &'a Environment,
    pub(crate) image: &'a Image,
    pub(crate) limits: receipt::Limits,
}

impl Made<'_> {
    /// `binds` is the copy and whatever is beside it; the first process comes to every container.
    pub(crate) fn spec(&self, name: ContainerName, lease: Uuid, mut binds: Vec<Bind>) -> Spec {
        let receipt::Limits { memory, pids, cpus_milli, file_bytes, tmp_bytes, .. } = self.limits;
        let Installed { directory, resolvers } = &self.sandbox.init;
        for (source, target) in [(directory, sandbox_init::DIRECTORY), (resolvers, RESOLVERS)] {
            let (source, target) = (source.clone(), target.to_owned());
            binds.push(Bind { source, target, mode: MountMode::Ro });
        }
        let labels = [
            (OWNER_LABEL, OWNER.to_owned()),
            (INSTANCE_LABEL, self.sandbox.instance.to_string()),
            (LEASE_LABEL, lease.to_string()),
            ("harness.session", self.session.id.to_string()),
            ("harness.epoch", self.session.epoch.to_string()),
            ("harness.policy", self.session.policy_rev()),
        ];
        Spec {
            name,
            image: self.image.id,
            path: self.image.path.clone(),
            user: self.environment.user,
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            binds,
            limits: Limits { memory, pids, cpus_milli, file_bytes, tmp_bytes },
        }
    }
}
