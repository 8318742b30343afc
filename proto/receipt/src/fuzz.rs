//! What every decoder must hold for any bytes: no panic, and what it accepts is what it would write.

use crate::{Grant, Obo, Payload, Plan, Receipt, Signed};

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

    #[test]
    fn the_seed_of_the_mutations_is_accepted() {
        use crate::Payload as _;
        assert!(crate::Grant::parse(GRANT.as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            fuzz_decoders(&bytes);
        }

        #[test]
        fn any_damage_to_a_good_payload_is_read_without_a_panic(
            at in 0..GRANT.len(),
            with in prop::collection::vec(any::<u8>(), 0..4),
            cut in 0usize..4,
        ) {
            let mut bytes = GRANT.as_bytes().to_vec();
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, with);
            fuzz_decoders(&bytes);
        }
    }
}
