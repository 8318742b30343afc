//! A signed payload as the ledger keeps it: members in the clear, so that they can be searched, and enough
//! beside them to verify the signature again offline.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::canonical::Malformed;
use crate::signed::Signed;

const SIGNATURE: &str = "signature";
const CHAIN: &str = "chain";
const PEM_LINE: usize = 64;

impl Signed {
    /// The payload's members, `signature` in hex and `chain` as PEM.
    pub fn to_record(&self) -> Result<Value, Malformed> {
        let mut record = event::canon::parse(&self.payload).map_err(|_| Malformed::Json)?;
        let members = record.as_object_mut().ok_or_else(|| shape("not an object"))?;
        let pem = self.chain.iter().map(|der| to_pem(der)).collect::<String>();
        for (name, text) in [(SIGNATURE, hex::encode(&self.signature)), (CHAIN, pem)] {
            if members.insert(name.to_owned(), Value::String(text)).is_some() {
                return Err(shape("the payload has a member of the record's own"));
            }
        }
        Ok(record)
    }

    /// The inverse of `to_record`; what it returns is not verified.
    pub fn from_record(record: &Value) -> Result<Self, Malformed> {
        let mut members = record.as_object().ok_or_else(|| shape("not an object"))?.clone();
        let signature = take_text(&mut members, SIGNATURE)?;
        let chain = take_text(&mut members, CHAIN)?;
        Ok(Self {
            payload: event::canon::to_bytes(&Value::Object(members))
                .map_err(|_| Malformed::Number)?,
            signature: hex::decode(signature).map_err(|_| shape("signature is not hex"))?,
            chain: CertificateDer::pem_slice_iter(chain.as_bytes())
                .map(|der| der.map(|der| der.to_vec()))
                .collect::<Result<_, _>>()
                .map_err(|_| shape("chain is not PEM"))?,
        })
    }
}

fn take_text(
    members: &mut serde_json::Map<String, Value>,
    name: &str,
) -> Result<String, Malformed> {
    match members.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) | None => Err(shape(&format!("{name} is missing"))),
    }
}

fn shape(what: &str) -> Malformed {
    Malformed::Shape(what.to_owned())
}

fn to_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        // Base64 is ASCII, so every index is a boundary.
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}
