//! Which sessions may start another run.

use kernel::RunId;
use kernel::session::{Allowance, NotAdmitted, Runs, admit};

#[test]
fn a_session_admits_what_its_dialect_allows() {
    let run = RunId(1);
    let table = [
        (Allowance::Single, Runs::None, Ok(())),
        (Allowance::Single, Runs::Live(run), Err(NotAdmitted::AlreadyRun(run))),
        (Allowance::Single, Runs::Ended { last: run }, Err(NotAdmitted::AlreadyRun(run))),
        (Allowance::Successive, Runs::None, Ok(())),
        (Allowance::Successive, Runs::Live(run), Err(NotAdmitted::Busy(run))),
        (Allowance::Successive, Runs::Ended { last: run }, Ok(())),
    ];
    for (allowance, runs, verdict) in table {
        assert_eq!(admit(allowance, runs), verdict);
    }
}
