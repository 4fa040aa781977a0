//! Certificates for servers on the loopback interface.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Writes `cert.pem` and `key.pem` for 127.0.0.1 into a directory, and returns the certificate of the authority that
/// signed `cert.pem`.
pub fn write_certificate(directory: &Path) -> String {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().unwrap();
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let leaf =
        CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    std::fs::write(directory.join("key.pem"), key.serialize_pem()).unwrap();
    std::fs::write(directory.join("cert.pem"), leaf.pem()).unwrap();
    root.pem()
}
