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
