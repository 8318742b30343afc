//! Sentences that several commands say alike. They decide nothing.

/// "2 different people with the role admin or operator, not the requester, each with their own signature".
pub(crate) fn requirement<'a>(
    roles: impl Iterator<Item = &'a str>,
    not_requester: bool,
    count: u8,
    signature: bool,
) -> String {
    let mut text = match count {
        0 | 1 => "1 person".to_owned(),
        more => format!("{more} different people"),
    };
    let roles: Vec<String> = roles.map(crate::escape::line).collect();
    if !roles.is_empty() {
        text.push_str(&format!(" with the role {}", roles.join(" or ")));
    }
    if not_requester {
        text.push_str(", not the requester");
    }
    if signature {
        text.push_str(match count {
            0 | 1 => ", with their own signature",
            _ => ", each with their own signature",
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::requirement;

    #[test]
    fn who_must_answer_is_said_in_one_sentence() {
        assert_eq!(requirement([].into_iter(), false, 1, false), "1 person");
        assert_eq!(
            requirement(["admin", "operator"].into_iter(), true, 2, true),
            "2 different people with the role admin or operator, not the requester, each with their own signature"
        );
    }
}
