//! The error codes of the dialect, numeric and symbolic. It decides neither when one is raised nor what it says.

/// Why a request failed. The first block is the dialect's own; the last four are sent only where it has no word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    ProtocolVersion,
    NotInitialized,
    SessionNotFound,
    SessionAlreadyRun,
    SessionLimit,
    PermissionNotFound,
    PermissionResolved,
    /// The stated plan digest is not that of the plan which was forwarded; the ask stays open.
    PlanMismatch,
    /// The person's role does not include this.
    Forbidden,
    /// A service that is needed does not answer; the same request may be sent again.
    Unavailable,
    /// Too many requests of this connection are unanswered.
    Busy,
}

const TABLE: [(Code, i64, &str); 16] = [
    (Code::Parse, -32700, "ACP_PARSE_ERROR"),
    (Code::InvalidRequest, -32600, "ACP_INVALID_REQUEST"),
    (Code::MethodNotFound, -32601, "ACP_METHOD_NOT_FOUND"),
    (Code::InvalidParams, -32602, "ACP_INVALID_PARAMS"),
    (Code::Internal, -32603, "ACP_INTERNAL_ERROR"),
    (Code::ProtocolVersion, -32001, "ACP_PROTOCOL_VERSION"),
    (Code::NotInitialized, -32002, "ACP_NOT_INITIALIZED"),
    (Code::SessionNotFound, -32010, "ACP_SESSION_NOT_FOUND"),
    (Code::SessionAlreadyRun, -32011, "ACP_SESSION_ALREADY_RUN"),
    (Code::SessionLimit, -32012, "ACP_SESSION_LIMIT"),
    (Code::PermissionNotFound, -32020, "ACP_PERMISSION_NOT_FOUND"),
    (Code::PermissionResolved, -32021, "ACP_PERMISSION_RESOLVED"),
    (Code::PlanMismatch, -32022, "ACP_PLAN_MISMATCH"),
    (Code::Forbidden, -32003, "ACP_FORBIDDEN"),
    (Code::Unavailable, -32004, "ACP_UNAVAILABLE"),
    (Code::Busy, -32005, "ACP_BUSY"),
];

impl Code {
    /// Every code, in the order of the error list.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(code, _, _)| *code)
    }

    #[must_use]
    pub fn number(self) -> i64 {
        self.row().1
    }

    #[must_use]
    pub fn symbol(self) -> &'static str {
        self.row().2
    }

    /// The code of a number and a symbol that belong together.
    #[must_use]
    pub fn find(number: i64, symbol: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == number && row.2 == symbol).map(|row| row.0)
    }

    fn row(self) -> &'static (Self, i64, &'static str) {
        // The table lists every variant once, which a test holds; the first row stands for none.
        TABLE.iter().find(|row| row.0 == self).unwrap_or(&TABLE[4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_own_row() {
        for (code, number, symbol) in TABLE {
            assert_eq!((code.number(), code.symbol()), (number, symbol));
            assert_eq!(Code::find(number, symbol), Some(code));
        }
        let mut numbers: Vec<i64> = TABLE.iter().map(|row| row.1).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), TABLE.len());
    }
}
