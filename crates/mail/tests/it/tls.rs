//! Delivery over TLS, from the first byte and by STARTTLS, to a server whose certificate a private
//! authority signed.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use portico_mail::{Address, Email, HeaderLine, SendError, Sender, SmtpSettings, SmtpTls, SmtpTransport, Transport};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl").args(arguments.split_whitespace()).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A mail server that speaks TLS, the authority of its certificate, and the emails that it took.
struct Server {
    port: u16,
    authority: Vec<u8>,
    mails: mpsc::UnboundedReceiver<String>,
}

async fn server(implicit: bool) -> Server {
    let folder = tempfile::tempdir().unwrap();
    openssl(folder.path(), &format!("req -x509 {KEY} -subj /CN=authority -days 2 -keyout ca.key -out ca.pem"));
    openssl(folder.path(), &format!("req {KEY} -subj /CN=localhost -keyout server.key -out server.csr"));
    std::fs::write(folder.path().join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n").unwrap();
    openssl(
        folder.path(),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    let certificate = CertificateDer::from_pem_file(folder.path().join("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.path().join("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (taken, mails) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (acceptor, taken) = (acceptor.clone(), taken.clone());
            tokio::spawn(async move {
                if implicit {
                    if let Ok(stream) = acceptor.accept(socket).await {
                        talk(stream, "220 fake\r\n", true, &taken).await;
                    }
                } else if talk(&mut socket, "220 fake\r\n", false, &taken).await
                    && let Ok(stream) = acceptor.accept(socket).await
                {
                    talk(stream, "", true, &taken).await;
                }
            });
        }
    });
    Server { port, authority: std::fs::read(folder.path().join("ca.pem")).unwrap(), mails }
}

/// Takes emails until the client leaves, or asks for TLS (`true`).
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    greeting: &str,
    encrypted: bool,
    taken: &mpsc::UnboundedSender<String>,
) -> bool {
    let mut stream = BufReader::new(stream);
    stream.write_all(greeting.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let (mut line, mut mail, mut in_data) = (String::new(), String::new(), false);
    loop {
        line.clear();
        if !matches!(stream.read_line(&mut line).await, Ok(1..)) {
            return false;
        }
        let reply = match line.trim_end() {
            "." if in_data => {
                in_data = false;
                taken.send(std::mem::take(&mut mail)).unwrap();
                "250 taken\r\n"
            }
            _ if in_data => {
                mail.push_str(&line);
                continue;
            }
            "DATA" => {
                in_data = true;
                "354 go on\r\n"
            }
            "STARTTLS" => {
                stream.write_all(b"220 go on\r\n").await.unwrap();
                stream.flush().await.unwrap();
                return true;
            }
            text if text.starts_with("EHLO") && !encrypted => "250-fake\r\n250-STARTTLS\r\n250 8BITMIME\r\n",
            text if text.starts_with("EHLO") => "250-fake\r\n250-AUTH PLAIN\r\n250 8BITMIME\r\n",
            text if text.starts_with("AUTH") => "235 welcome\r\n",
            _ => "250 ok\r\n",
        };
        if stream.write_all(reply.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return false;
        }
    }
}

impl Server {
    fn settings(&self, tls: SmtpTls) -> SmtpSettings {
        SmtpSettings {
            tls,
            extra_roots: Some(self.authority.clone()),
            timeout: Duration::from_secs(60),
            ..SmtpSettings::new("localhost", self.port)
        }
    }
}

async fn send(settings: &SmtpSettings) -> Result<(), SendError> {
    let sender = Sender::new("Shop", Address::parse("shop@example.com").unwrap());
    let email =
        Email::new(sender, Address::parse("ann@example.com").unwrap(), HeaderLine::flatten("Hi"), "<p>over TLS</p>");
    SmtpTransport::new(settings).unwrap().send(email).await
}

#[tokio::test]
async fn mail_goes_over_tls_from_the_first_byte() {
    let mut server = server(true).await;
    let login = SmtpSettings {
        user: Some("user".into()),
        password: Some("secret".into()),
        ..server.settings(SmtpTls::Implicit)
    };
    send(&login).await.unwrap();
    assert!(server.mails.recv().await.unwrap().contains("over TLS"));
}

#[tokio::test]
async fn mail_goes_over_starttls_when_it_is_offered() {
    let mut server = server(false).await;
    for tls in [SmtpTls::Required, SmtpTls::Opportunistic, SmtpTls::Automatic] {
        send(&server.settings(tls)).await.unwrap();
        assert!(server.mails.recv().await.unwrap().contains("over TLS"));
    }
}

#[tokio::test]
async fn a_certificate_of_a_stranger_ends_the_connection() {
    let mut server = server(true).await;
    let stranger = SmtpSettings { extra_roots: None, ..server.settings(SmtpTls::Implicit) };
    assert!(send(&stranger).await.unwrap_err().is_temporary());
    let other_name = SmtpSettings { host: "127.0.0.1".into(), ..server.settings(SmtpTls::Implicit) };
    assert!(send(&other_name).await.unwrap_err().is_temporary());
    assert!(server.mails.try_recv().is_err());
    let broken =
        SmtpSettings { extra_roots: Some(b"-----BEGIN nonsense".to_vec()), ..server.settings(SmtpTls::Implicit) };
    if let Ok(transport) = SmtpTransport::new(&broken) {
        assert!(transport.check().await.is_err());
    }
}
