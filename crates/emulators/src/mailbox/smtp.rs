//! An SMTP server that keeps what it gets (RFC 5321, as far as a development mail server needs it).

use std::{future::Future, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};
use tracing::{debug, warn};

use super::Mailbox;

const MOST_CONNECTIONS: usize = 64;
const MOST_RECIPIENTS: usize = 100;
/// The longest command line; RFC 5321 asks for 512 bytes, extensions for more.
const LONGEST_LINE: usize = 4_096;
/// The longest line of a message; the standard allows 1000 bytes, programs send more.
const LONGEST_DATA_LINE: usize = 1 << 20;
/// Time that a client may be silent.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn serve(mailbox: Mailbox, listener: TcpListener, shutdown: impl Future<Output = ()> + Send) {
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let mut sessions = JoinSet::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => return,
            accepted = listener.accept() => accepted,
            Some(_) = sessions.join_next() => continue,
        };
        match accepted {
            Ok((socket, _)) => match Arc::clone(&slots).try_acquire_owned() {
                Ok(slot) => {
                    let mailbox = mailbox.clone();
                    sessions.spawn(async move {
                        if let Err(error) = session(mailbox, socket).await {
                            debug!(error = %error, "a mail client's connection ended early");
                        }
                        drop(slot);
                    });
                }
                Err(_) => drop(socket),
            },
            Err(error) => {
                warn!(error = %error, "the mailbox could not take a connection");
                // Out of file handles, most likely: without a pause this would spin
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The envelope of the email that is being handed over.
#[derive(Default)]
struct SmtpEnvelope {
    sender: Option<String>,
    recipients: Vec<String>,
}

async fn session(mailbox: Mailbox, socket: TcpStream) -> std::io::Result<()> {
    let (read, mut write) = socket.into_split();
    let mut input = BufReader::new(read);
    let largest = mailbox.inner.limits.message_bytes;
    let mut envelope = SmtpEnvelope::default();
    write.write_all(b"220 portico development mailbox ESMTP\r\n").await?;
    loop {
        let line = match read_line(&mut input, LONGEST_LINE).await? {
            Line::Whole(line) => String::from_utf8_lossy(&line).into_owned(),
            Line::TooLong => {
                write.write_all(b"500 5.5.2 The line is too long\r\n").await?;
                continue;
            }
            Line::End => return Ok(()),
        };
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match verb.trim().to_ascii_uppercase().as_str() {
            "EHLO" => {
                envelope = SmtpEnvelope::default();
                format!(
                    "250-portico\r\n250-PIPELINING\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-AUTH PLAIN LOGIN\r\n250 SIZE {largest}\r\n"
                )
            }
            "HELO" => {
                envelope = SmtpEnvelope::default();
                "250 portico\r\n".to_owned()
            }
            "MAIL" => match path(rest, "FROM:") {
                Some(sender) => {
                    envelope = SmtpEnvelope { sender: Some(sender), recipients: Vec::new() };
                    "250 2.1.0 Ok\r\n".to_owned()
                }
                None => "501 5.5.4 MAIL FROM:<address> is expected\r\n".to_owned(),
            },
            "RCPT" if envelope.sender.is_none() => "503 5.5.1 MAIL comes first\r\n".to_owned(),
            "RCPT" if envelope.recipients.len() == MOST_RECIPIENTS => "452 4.5.3 Too many recipients\r\n".to_owned(),
            "RCPT" => match path(rest, "TO:").filter(|address| !address.is_empty()) {
                Some(recipient) => {
                    envelope.recipients.push(recipient);
                    "250 2.1.5 Ok\r\n".to_owned()
                }
                None => "501 5.5.4 RCPT TO:<address> is expected\r\n".to_owned(),
            },
            "DATA" if envelope.recipients.is_empty() => "503 5.5.1 RCPT comes first\r\n".to_owned(),
            "DATA" => {
                write.write_all(b"354 Go on, and end with a dot on a line of its own\r\n").await?;
                let envelope = std::mem::take(&mut envelope);
                match read_data(&mut input, largest).await? {
                    None => return Ok(()),
                    Some(Data::TooLarge) => "552 5.3.4 The message is too large\r\n".to_owned(),
                    Some(Data::Whole(raw)) => {
                        match mailbox.capture(raw, &envelope.sender.unwrap_or_default(), &envelope.recipients) {
                            Ok(mail) => format!("250 2.0.0 Ok: kept as {}\r\n", mail.id),
                            Err(_) => "554 5.6.0 This is no message\r\n".to_owned(),
                        }
                    }
                }
            }
            "RSET" => {
                envelope = SmtpEnvelope::default();
                "250 2.0.0 Ok\r\n".to_owned()
            }
            "NOOP" => "250 2.0.0 Ok\r\n".to_owned(),
            "VRFY" => "252 2.0.0 Addresses are not checked\r\n".to_owned(),
            "AUTH" => {
                if !authenticate(rest, &mut input, &mut write).await? {
                    return Ok(());
                }
                "235 2.7.0 Welcome\r\n".to_owned()
            }
            "QUIT" => {
                write.write_all(b"221 2.0.0 Bye\r\n").await?;
                return Ok(());
            }
            _ => "502 5.5.1 Unknown command\r\n".to_owned(),
        };
        write.write_all(reply.as_bytes()).await?;
    }
}

/// Performs a login that accepts any credentials. Returns `false` if the client disconnected.
async fn authenticate(
    request: &str,
    input: &mut (impl AsyncBufRead + Unpin),
    write: &mut (impl AsyncWriteExt + Unpin),
) -> std::io::Result<bool> {
    let mut words = request.split_whitespace();
    let mechanism = words.next().unwrap_or_default().to_ascii_uppercase();
    let given = usize::from(words.next().is_some());
    // LOGIN asks for "Username:" and "Password:", PLAIN for one answer
    let questions: &[&[u8]] =
        if mechanism == "LOGIN" { &[b"334 VXNlcm5hbWU6\r\n", b"334 UGFzc3dvcmQ6\r\n"] } else { &[b"334 \r\n"] };
    for question in questions.iter().skip(given) {
        write.write_all(question).await?;
        if matches!(read_line(input, LONGEST_LINE).await?, Line::End) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the address in `FROM:<address> SIZE=1`.
fn path(arguments: &str, word: &str) -> Option<String> {
    let start = arguments.get(..word.len()).filter(|start| start.eq_ignore_ascii_case(word))?.len();
    let rest = arguments[start..].trim_start();
    let address = match rest.strip_prefix('<') {
        Some(inside) => inside.split_once('>')?.0,
        None => rest.split_whitespace().next().unwrap_or_default(),
    };
    (address.len() <= 320 && !address.contains(char::is_control)).then(|| address.to_owned())
}

enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads a line without its end. Of a line that is too long the rest is skipped.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin), longest: usize) -> std::io::Result<Line> {
    let mut line = Vec::new();
    let mut too_long = false;
    loop {
        let available = tokio::time::timeout(PATIENCE, input.fill_buf())
            .await
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
        if available.is_empty() {
            return Ok(Line::End);
        }
        let end = available.iter().position(|&byte| byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        if line.len() + taken > longest {
            too_long = true;
        }
        if !too_long {
            line.extend_from_slice(&available[..taken]);
        }
        input.consume(taken);
        if end.is_some() {
            if too_long {
                return Ok(Line::TooLong);
            }
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(Line::Whole(line));
        }
    }
}

enum Data {
    Whole(Vec<u8>),
    TooLarge,
}

/// Reads a message up to the line with the single dot. `None`: the client left.
async fn read_data(input: &mut (impl AsyncBufRead + Unpin), largest: usize) -> std::io::Result<Option<Data>> {
    let mut raw = Vec::new();
    let mut too_large = false;
    loop {
        match read_line(input, LONGEST_DATA_LINE).await? {
            Line::End => return Ok(None),
            Line::TooLong => too_large = true,
            Line::Whole(line) if line == b"." => {
                return Ok(Some(if too_large { Data::TooLarge } else { Data::Whole(raw) }));
            }
            Line::Whole(line) => {
                let line = line.strip_prefix(b".").unwrap_or(&line);
                if raw.len() + line.len() + 2 > largest {
                    too_large = true;
                    raw = Vec::new();
                }
                if !too_large {
                    raw.extend_from_slice(line);
                    raw.extend_from_slice(b"\r\n");
                }
            }
        }
    }
}
