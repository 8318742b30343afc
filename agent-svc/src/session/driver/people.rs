//! What people did beside settling an ask: allows that count and are not enough yet, and allows for the run that were taken
//! back. The rows decide; here the stream and the run learn of it.

use event::id::{PermissionId, ReceiptId, RunId};
use event::{Data, PermissionCounted};
use kernel::{Fact, Seen};

use super::{Broken, Driver};
use crate::ids;
use crate::session::content::Content;
use crate::session::describe;
use crate::store::{Append, Change, Counted, Untold};
use crate::work::Work;

impl Driver {
    /// Each allow that counts is told once, before whatever settles the ask.
    pub(super) async fn tell_counted(&mut self, permission: PermissionId) -> Result<(), Broken> {
        let untold = self.runtime.store.untold(permission).await.map_err(Broken::Store)?;
        for Untold { receipt, by, counted: Counted { have, need } } in untold {
            let at = self.runtime.clock.now();
            let actor = describe::operator(&by);
            let session_id = self.session.owner.session;
            let counted =
                PermissionCounted { permission_id: permission, session_id, by, have, need };
            let mut append = Append::new(at.into());
            let entry = describe::entry(at, actor, Data::PermissionCounted(counted));
            append.entries = vec![entry.map_err(Broken::Seal)?];
            append.changes = vec![Change::Counted { receipt, entry: 0 }];
            self.commit(self.front().map(Work::id), append).await?;
        }
        Ok(())
    }

    /// An allow for the run of which one receipt was taken back covers nothing any more.
    pub(super) async fn forget_revoked(&mut self) -> Result<(), Broken> {
        let runs = self.works().filter(|work| work.run.standing().next().is_some());
        let runs: Vec<RunId> = runs.map(Work::id).collect();
        for run in runs {
            let broken = self.runtime.store.broken_grants(run).await.map_err(Broken::Store)?;
            for permission in broken {
                let seen = Seen::Revoked { permission: ids::of_permission(permission) };
                self.record(run, seen, &Content::Bare).await?;
            }
        }
        Ok(())
    }

    /// The receipt that stands for an allow for the run which these facts use.
    pub(super) async fn standing(
        &self,
        events: &[kernel::Event],
    ) -> Result<Option<ReceiptId>, Broken> {
        let used = events.iter().find_map(|event| match &event.fact {
            Fact::GrantUsed { permission, .. } => Some(ids::permission(*permission)),
            _ => None,
        });
        let Some(used) = used else { return Ok(None) };
        let ids = self.runtime.store.receipt_ids(used).await.map_err(Broken::Store)?;
        Ok(ids.last().copied())
    }
}
