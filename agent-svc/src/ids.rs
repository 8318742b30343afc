//! The same names on both sides of the kernel's border, where they are plain numbers.

use event::id::{CallId, PermissionId, RunId};
use uuid::Uuid;

pub(crate) fn of_run(id: RunId) -> kernel::RunId {
    kernel::RunId(id.as_uuid().as_u128())
}

pub(crate) fn of_call(id: CallId) -> kernel::CallId {
    kernel::CallId(id.as_uuid().as_u128())
}

pub(crate) fn of_permission(id: PermissionId) -> kernel::PermissionId {
    kernel::PermissionId(id.as_uuid().as_u128())
}

pub(crate) fn run(id: kernel::RunId) -> RunId {
    Uuid::from_u128(id.0).into()
}

pub(crate) fn call(id: kernel::CallId) -> CallId {
    Uuid::from_u128(id.0).into()
}

pub(crate) fn permission(id: kernel::PermissionId) -> PermissionId {
    Uuid::from_u128(id.0).into()
}
