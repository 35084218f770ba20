//! TLS to an external PostgreSQL: rustls behind the driver's connector traits, with `sslmode` as
//! PostgreSQL means it.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use crate::endpoint::settings::{Host, TlsMode, TlsSettings};

/// A certificate file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Missing, unreadable, or not PEM.
    #[error("cannot read {} for the database's TLS: {problem}", .file.display())]
    File {
        /// The file of `sslrootcert`, `sslcert` or `sslkey`.
        file: PathBuf,
        /// The reason.
        problem: String,
    },
    /// The system has no certificate authorities.
    #[error("the system's certificate authorities cannot be read ({0}): name a file with sslrootcert")]
    NoSystemRoots(String),
    /// The certificates do not fit together.
    #[error("the database's TLS settings are not usable: {0}")]
    Settings(#[from] rustls::Error),
}

/// The TLS configuration, made once per endpoint. Without a configuration the mode is `disable`.
#[derive(Debug, Clone)]
pub(crate) struct Tls(Option<Arc<ClientConfig>>);

impl Tls {
    /// Reads the certificates that the settings name. A socket needs none of it.
    pub fn new(settings: &TlsSettings, host: &Host) -> Result<Self, TlsError> {
        if settings.mode == TlsMode::Disable || matches!(host, Host::Socket(_)) {
            return Ok(Self(None));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = Arc::new(CertificateVerifier::new(settings, &provider)?);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &settings.client_certificate {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let unreadable = |error: rustls_pki_types::pem::Error| TlsError::File {
                    file: key.clone(),
                    problem: error.to_string(),
                };
                builder.with_client_auth_cert(
                    certificates(certificate)?,
                    PrivateKeyDer::from_pem_file(key).map_err(unreadable)?,
                )?
            }
        };
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Self(Some(Arc::new(config))))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |problem: String| TlsError::File { file: file.to_owned(), problem };
    let found = CertificateDer::pem_file_iter(file)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| unreadable(error.to_string()))?;
    if found.is_empty() {
        return Err(unreadable("it holds no certificate".into()));
    }
    Ok(found)
}

/// Judges the server's certificate by the mode. Signatures are checked in every mode: they prove
/// that the server holds the certificate's key, which channel binding builds on.
#[derive(Debug)]
struct CertificateVerifier {
    trusted: Option<TrustedCertificates>,
    checks_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

/// The authorities to trust; the certificates themselves too, since a self-signed server
/// certificate is its own authority.
#[derive(Debug)]
struct TrustedCertificates {
    roots: RootCertStore,
    certificates: Vec<CertificateDer<'static>>,
}

impl CertificateVerifier {
    fn new(settings: &TlsSettings, provider: &CryptoProvider) -> Result<Self, TlsError> {
        let trusted = match (settings.mode, &settings.root_certificates) {
            (TlsMode::Disable | TlsMode::Prefer, _) | (TlsMode::Require, None) => None,
            (TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull, Some(file)) => {
                let certificates = certificates(file)?;
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(certificates.iter().cloned());
                Some(TrustedCertificates { roots, certificates })
            }
            (TlsMode::VerifyCa | TlsMode::VerifyFull, None) => Some(system_authorities()?),
        };
        Ok(Self {
            trusted,
            checks_name: settings.mode == TlsMode::VerifyFull,
            algorithms: provider.signature_verification_algorithms,
        })
    }
}

fn system_authorities() -> Result<TrustedCertificates, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let problem = found.errors.first().map_or_else(|| "none found".to_owned(), ToString::to_string);
        return Err(TlsError::NoSystemRoots(problem));
    }
    Ok(TrustedCertificates { roots, certificates: Vec::new() })
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(trusted) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if !trusted.certificates.contains(end_entity) {
            let all = self.algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&certificate, &trusted.roots, intermediates, now, all)?;
        }
        if self.checks_name {
            verify_server_name(&certificate, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// TLS to one host.
pub(crate) struct TlsConnector {
    config: Option<Arc<ClientConfig>>,
    host: Result<ServerName<'static>, String>,
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type TlsConnect = TlsConnector;
    type Error = rustls::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<TlsConnector, rustls::Error> {
        Ok(TlsConnector {
            config: self.0.clone(),
            host: ServerName::try_from(host.to_owned()).map_err(|_| host.to_owned()),
        })
    }
}

impl<S> TlsConnect<S> for TlsConnector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = EncryptedStream<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedStream<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("TLS is disabled for this connection"))?;
            let host = self
                .host
                .map_err(|host| io::Error::other(format!("`{host}` cannot be a host name in a certificate")))?;
            let stream = tokio_rustls::TlsConnector::from(config).connect(host, stream).await?;
            Ok(EncryptedStream(Box::new(stream)))
        })
    }
}

/// The encrypted connection. Boxed: most connections are plain, and should not carry the size of a
/// TLS session.
pub(crate) struct EncryptedStream<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S> EncryptedStream<S> {
    /// Returns the channel binding `tls-server-end-point` of RFC 5929: the hash of the server's
    /// certificate. With it, a password exchange that is relayed over another TLS connection fails.
    pub fn end_point(&self) -> Option<Vec<u8>> {
        let certificates = self.0.get_ref().1.peer_certificates();
        certificates.and_then(|chain| chain.first()).and_then(|certificate| end_point_hash(certificate))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for EncryptedStream<S> {
    fn channel_binding(&self) -> ChannelBinding {
        match self.end_point() {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

/// Returns the certificate's hash by the hash function of its own signature, except that MD5 and
/// SHA-1 become SHA-256. `None` when the signature has no single hash function (Ed25519) or we do
/// not know it: then nothing is bound.
fn end_point_hash(certificate: &[u8]) -> Option<Vec<u8>> {
    use aws_lc_rs::digest::{SHA256, SHA384, SHA512, digest};
    let algorithm =
        match signature_algorithm(certificate)? {
            // PKCS #1 v1.5 with RSA: MD5, SHA-1, SHA-256; ECDSA: SHA-1, SHA-256
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x04 | 0x05 | 0x0b]
            | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01]
            | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02] => &SHA256,
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0c]
            | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03] => &SHA384,
            [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0d]
            | [0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04] => &SHA512,
            _ => return None,
        };
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// Returns the object identifier in `Certificate ::= SEQUENCE { tbsCertificate SEQUENCE,
/// signatureAlgorithm SEQUENCE { OID, .. }, .. }`.
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (_to_be_signed, rest) = element(certificate, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    Some(element(algorithm, OBJECT_IDENTIFIER)?.0)
}

/// Takes one DER element of the given tag: its content, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = der.split_first()?;
    let (&length, rest) = rest.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length & 0x7f))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    if first == tag { rest.split_at_checked(length) } else { None }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EncryptedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EncryptedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_that_are_no_certificate_have_no_hash_and_do_no_harm(bytes: Vec<u8>) {
            let _ = end_point_hash(&bytes);
        }
    }

    #[test]
    fn the_signature_algorithm_is_found_behind_the_signed_part() {
        let certificate = [0x30, 0x0b, 0x30, 0x02, 0x05, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];
        assert_eq!(signature_algorithm(&certificate), Some(&[0x2b, 0x65, 0x70][..]));
        assert_eq!(end_point_hash(&certificate), None, "Ed25519 names no hash function");
        assert_eq!(signature_algorithm(&certificate[..9]), None);
    }
}
