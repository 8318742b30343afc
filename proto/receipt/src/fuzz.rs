//! What every decoder must hold for any bytes: no panic, and what it accepts is what it would write.

use crate::{Approval, ApproverKey, Grant, Obo, Payload, Plan, PublicKey, Receipt, Signed};

/// Feeds `bytes` to each decoder.
///
/// # Panics
/// When a decoder accepts bytes that it would not write.
pub fn fuzz_decoders(bytes: &[u8]) {
    if let Ok(plan) = Plan::parse(bytes) {
        assert_eq!(plan.to_bytes().as_deref(), Ok(bytes));
        assert!(plan.action_digest().is_ok());
    }
    if let Ok(signed) = Signed::parse(bytes) {
        assert_eq!(signed.to_bytes().as_deref(), Ok(bytes));
    }
    if let Ok(approval) = Approval::parse(bytes) {
        assert_eq!(approval.to_bytes().as_deref(), Ok(bytes));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(key) = PublicKey::parse(text)
    {
        assert_eq!(PublicKey::parse(&key.to_string()), Ok(key));
    }
    drop(ApproverKey::from_pem(bytes));
    payload::<Grant>(bytes);
    payload::<Receipt>(bytes);
    payload::<Obo>(bytes);
}

fn payload<P: Payload>(bytes: &[u8]) {
    if let Ok(payload) = P::parse(bytes) {
        assert_eq!(payload.to_bytes().as_deref(), Ok(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::fuzz_decoders;
    use proptest::prelude::*;

    const GRANT: &str = concat!(
        r#"{"exp":1900003600,"iat":1900000000,"#,
        r#""manifest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","#,
        r#""manifest_id":"demo","models":[],"on_disconnect":"deny","#,
        r#""session":"0198f000-0000-7000-8000-000000000001","subject":"dev","#,
        r#""tenant":"default","workspace":"demo"}"#,
    );

    const APPROVAL: &str = concat!(
        r#"{"action":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","#,
        r#""call":"0198f000-0000-7000-8000-00000000000a","exp":1900003600,"iat":1900000000,"#,
        r#""permission":"0198f000-0000-7000-8000-000000000003","#,
        r#""plan":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","#,
        r#""run":"0198f000-0000-7000-8000-000000000002","scope":"once","#,
        r#""session":"0198f000-0000-7000-8000-000000000001","subject":"alice"}"#,
    );

    #[test]
    fn the_seeds_of_the_mutations_are_accepted() {
        use crate::Payload as _;
        assert!(crate::Grant::parse(GRANT.as_bytes()).is_ok());
        assert!(crate::Approval::parse(APPROVAL.as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            fuzz_decoders(&bytes);
        }

        #[test]
        fn any_damage_to_a_good_payload_is_read_without_a_panic(
            seed in prop::sample::select(vec![GRANT, APPROVAL]),
            at in 0..GRANT.len(),
            with in prop::collection::vec(any::<u8>(), 0..4),
            cut in 0usize..4,
        ) {
            let mut bytes = seed.as_bytes().to_vec();
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, with);
            fuzz_decoders(&bytes);
        }
    }
}
