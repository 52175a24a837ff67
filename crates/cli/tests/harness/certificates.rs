//! Certificates of a test's own authority, as files.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

/// An authority, and the folder its certificates go to.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    /// The file with its own certificate.
    pub(crate) file: PathBuf,
}

/// A certificate and its key.
#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let file = folder.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key), folder: folder.to_owned(), file }
    }

    /// A certificate for this machine that ends with that year.
    pub(crate) fn pair(&self, until_year: i32) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(until_year, 12, 31);
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// The same in files: of the certificate and of the key.
    pub(crate) fn files(&self, name: &str, until_year: i32) -> [PathBuf; 2] {
        let pair = self.pair(until_year);
        let files = [format!("{name}.pem"), format!("{name}.key")].map(|name| self.folder.join(name));
        write(&files, &pair);
        files
    }
}

/// Puts the pair into files that are there.
pub(crate) fn write(files: &[PathBuf; 2], pair: &Pair) {
    for (file, text) in files.iter().zip([&pair.certificate, &pair.key]) {
        std::fs::write(file, text).unwrap();
    }
}
