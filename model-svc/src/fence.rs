//! Judges a grant and its manifest, by itself: agent-svc carries both and could make neither. What passes are the terms of a
//! session.

use event::Digest;
use manifest::Manifest;
use receipt::{Grant, Signed, Verified, Verifier};
use time::OffsetDateTime;
use transport::Material;

use crate::models::Models;
use crate::owner::{Owner, Terms};
use crate::refusal::Refusal;

/// A refusal, and the terms if the grant itself was good.
pub(crate) type Judged = Result<Terms, Refusal>;

pub(crate) fn judge(
    material: &Material,
    models: &Models,
    (owner, grant, manifest): (&Owner, &Signed, &[u8]),
    now: OffsetDateTime,
) -> Judged {
    // Made anew each time, so that it holds the issuers that are trusted now.
    let verifier = Verifier::new(&material.services_ca(), material.trust_domain().as_str())
        .map_err(Refusal::NoTrust)?;
    let denied =
        |signing: &receipt::Signing| material.denies(&signing.spiffe_id, &signing.serial_hex);
    let now = u64::try_from(now.unix_timestamp()).unwrap_or(0);
    let grant = verifier.verify::<Grant>(grant, now, &denied).map_err(Refusal::Grant)?;
    if grant.session != owner.session {
        return Err(Refusal::GrantSessionMismatch);
    }
    let manifest = compile(&grant, manifest)?;
    allow_models(&grant, &manifest, models)?;
    let Grant { tenant, subject, manifest: digest, workspace, models, exp, .. } =
        grant.into_inner();
    Ok(Terms {
        tenant,
        subject,
        manifest: digest,
        workspace,
        models,
        max_model_tokens: manifest.budget.max_model_tokens,
        grant_exp: exp,
    })
}

fn compile(grant: &Verified<Grant>, bytes: &[u8]) -> Result<Manifest, Refusal> {
    if Digest::of(bytes) != grant.manifest {
        return Err(Refusal::ManifestMismatch);
    }
    let file = format!("{}.yaml", grant.manifest_id);
    let manifest = Manifest::parse(bytes, &file).map_err(Refusal::ManifestInvalid)?;
    if manifest.id != grant.manifest_id {
        return Err(Refusal::ManifestMismatch);
    }
    Ok(manifest)
}

/// Every model that is named must be on offer, and the grant may not go beyond the manifest.
fn allow_models(
    grant: &Verified<Grant>,
    manifest: &Manifest,
    models: &Models,
) -> Result<(), Refusal> {
    for model in manifest.models.iter().chain(&grant.models) {
        if models.get(model).is_none() {
            return Err(Refusal::ModelUnknown { model: model.clone() });
        }
    }
    if manifest.models.is_empty() {
        return Ok(());
    }
    match grant.models.iter().find(|model| !manifest.models.contains(model)) {
        None => Ok(()),
        Some(model) => Err(Refusal::ModelNotAllowed { model: model.clone() }),
    }
}
