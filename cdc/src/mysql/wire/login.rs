//! From a socket to a connection that takes commands: greeting, encryption, password.

use std::panic::catch_unwind;

use mysql_async::DriverError;
use mysql_async::consts::CapabilityFlags;
use mysql_common::crypto;
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, AuthSwitchRequest, HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;

use super::tls::{self, Trust};
use super::{MAX_PACKET, Result, RowConn, Transport, server_error, unexpected};

/// Who logs in, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Login<'a> {
    pub(super) host: &'a str,
    pub(super) user: &'a str,
    pub(super) password: &'a str,
    /// `None` for a connection that is not encrypted.
    pub(super) tls: Option<Trust<'a>>,
}

/// utf8mb4_general_ci, which every server knows.
const COLLATION: u8 = 45;

/// Answers that a server gives to a password.
const OK: u8 = 0x00;
const MORE: u8 = 0x01;
const SWITCH: u8 = 0xfe;
/// caching_sha2_password: the password was right, and the server had it ready.
const KNOWN: u8 = 3;
/// caching_sha2_password: the server wants the password itself.
const TELL: u8 = 4;
/// caching_sha2_password: asks for the server's public key.
const ASK_KEY: u8 = 2;

impl RowConn {
    /// Logs in over a fresh connection.
    pub(super) async fn log_in(stream: Box<dyn Transport>, login: Login<'_>) -> Result<Self> {
        let mut conn = Self::new(stream);
        let greeting = conn.packet().await?;
        let greeting = conn.frames.payload(greeting);
        if greeting.first() == Some(&0xff) {
            return Err(server_error(greeting));
        }
        let greeting: HandshakePacket<'_> = ParseBuf(greeting).parse(()).map_err(|_| unexpected(greeting))?;
        let offered = greeting.capabilities();
        let mut nonce = greeting.nonce();
        // The nonce is sent with a zero behind it.
        nonce.resize(20, 0);
        // Servers name the plugin of most users, which need not be this user's: another one is asked for then.
        let plugin = match greeting.auth_plugin() {
            Some(AuthPlugin::CachingSha2Password) => AuthPlugin::CachingSha2Password,
            _ => AuthPlugin::MysqlNativePassword,
        };
        let mut capabilities = offered
            & (CapabilityFlags::CLIENT_LONG_PASSWORD
                | CapabilityFlags::CLIENT_LONG_FLAG
                | CapabilityFlags::CLIENT_PROTOCOL_41
                | CapabilityFlags::CLIENT_TRANSACTIONS
                | CapabilityFlags::CLIENT_SECURE_CONNECTION
                | CapabilityFlags::CLIENT_PLUGIN_AUTH
                | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA);
        if let Some(trust) = login.tls {
            if !offered.contains(CapabilityFlags::CLIENT_SSL) {
                return Err(DriverError::NoClientSslFlagFromServer.into());
            }
            capabilities.insert(CapabilityFlags::CLIENT_SSL);
            let mut request = Vec::new();
            SslRequest::new(capabilities, MAX_PACKET as u32, COLLATION).serialize(&mut request);
            conn.send(&request).await?;
            conn = conn.encrypted(login.host, trust).await?;
        }
        let answer = plugin.gen_data(Some(login.password), &nonce);
        let mut response = Vec::new();
        HandshakeResponse::new(
            answer.as_deref(),
            (5, 7, 0),
            Some(login.user.as_bytes()),
            None::<&[u8]>,
            Some(plugin.borrow()),
            capabilities,
            None,
            MAX_PACKET as u32,
        )
        .serialize(&mut response);
        conn.send(&response).await?;
        conn.authenticate(login, plugin, nonce).await?;
        Ok(conn)
    }

    async fn encrypted(self, host: &str, trust: Trust<'_>) -> Result<Self> {
        // What came before the encryption may be anybody's.
        if !self.frames.is_empty() {
            return Err(unexpected(&[]));
        }
        let stream = tls::connect(self.stream, host, trust).await?;
        Ok(Self { stream, ..self })
    }

    /// Answers the server until it is satisfied or refuses.
    async fn authenticate(&mut self, login: Login<'_>, plugin: AuthPlugin<'_>, mut nonce: Vec<u8>) -> Result<()> {
        let mut plugin = plugin.into_owned();
        // A server asks at most for another plugin, then for a key and the password.
        for _ in 0..4 {
            let packet = self.packet().await?;
            let packet = self.frames.payload(packet);
            let mut answer = Vec::new();
            match (packet, &plugin) {
                ([OK, ..], _) => return Ok(()),
                ([0xff, ..], _) => return Err(server_error(packet)),
                ([SWITCH, _, ..], _) => {
                    let request: AuthSwitchRequest<'_> = ParseBuf(packet).parse(()).map_err(|_| unexpected(packet))?;
                    nonce = request.plugin_data().to_vec();
                    plugin = request.auth_plugin().into_owned();
                    match plugin {
                        AuthPlugin::CachingSha2Password | AuthPlugin::MysqlNativePassword => {}
                        AuthPlugin::MysqlOldPassword => return Err(DriverError::MysqlOldPasswordDisabled.into()),
                        AuthPlugin::MysqlClearPassword => return Err(DriverError::CleartextPluginDisabled.into()),
                        other => {
                            let name = String::from_utf8_lossy(other.as_bytes()).into_owned();
                            return Err(DriverError::UnknownAuthPlugin { name }.into());
                        }
                    }
                    if let Some(data) = plugin.gen_data(Some(login.password), &nonce) {
                        answer.extend_from_slice(&data);
                    }
                }
                ([SWITCH], _) => return Err(DriverError::MysqlOldPasswordDisabled.into()),
                ([MORE, KNOWN], AuthPlugin::CachingSha2Password) => continue,
                ([MORE, TELL], AuthPlugin::CachingSha2Password) => {
                    let mut password = login.password.as_bytes().to_vec();
                    password.push(0);
                    if login.tls.is_some() {
                        answer = password;
                    } else {
                        answer = self.hidden(password, &nonce).await?;
                    }
                }
                _ => return Err(unexpected(packet)),
            }
            self.send(&answer).await?;
        }
        Err(unexpected(&[]))
    }

    /// The password as only the server's private key reveals it.
    async fn hidden(&mut self, mut password: Vec<u8>, nonce: &[u8]) -> Result<Vec<u8>> {
        self.send(&[ASK_KEY]).await?;
        let packet = self.packet().await?;
        let packet = self.frames.payload(packet);
        let [MORE, key @ ..] = packet else { return Err(unexpected(packet)) };
        for (byte, mask) in password.iter_mut().zip(nonce.iter().cycle()) {
            *byte ^= mask;
        }
        // The library takes any key for a well-formed one.
        catch_unwind(|| crypto::encrypt(&password, key)).map_err(|_| unexpected(packet))
    }
}
