//! Attempts to reach sockets of every kind. The test has listeners, which detect a connection.

use std::io::ErrorKind;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use haft_testkit::{TestTree, libc, unique_marker, users};

use super::{EscapeTrial, TRIAL, python, tried, whole};

const WORKSPACE: &[&str] = &[];
const NETWORK: &[&str] = &["--mode", "network"];
const FULL: &[&str] = &["--mode", "full"];

pub(crate) const TCP: &str = r#"exec 3<> "/dev/tcp/127.0.0.1/$port" && echo hello >&3"#;
pub(crate) const UDP: &str = r#"echo hello > "/dev/udp/127.0.0.1/$port""#;
pub(crate) const PATHNAME: &str = "socket.socket(socket.AF_UNIX).connect(outside + '/socket')";
pub(crate) const ABSTRACT: &str = "socket.socket(socket.AF_UNIX).connect('\\0' + os.environ['name'])";
pub(crate) const DATAGRAM: &str =
    "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'hello', outside + '/datagrams')";
/// A filter for the system call `socket` alone would not stop this attempt: `socketpair` creates sockets too, and a
/// datagram socket can send to an address other than its peer.
pub(crate) const DATAGRAM_OF_A_PAIR: &str =
    "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'hello', outside + '/datagrams')";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionOutcome {
    Reached,
    Refused,
}
use ConnectionOutcome::{Reached, Refused};

#[test]
fn tcp_needs_network_allow_in_workspace_mode() {
    check(WORKSPACE, TCP, Refused);
    check(&["--network", "allow"], TCP, Reached);
}

#[test]
fn network_mode_allows_tcp_unless_network_is_denied() {
    check(NETWORK, TCP, Reached);
    check(&["--mode", "network", "--network", "deny"], TCP, Refused);
}

#[test]
fn udp_is_refused_in_workspace_mode_and_allowed_in_network_mode() {
    check(WORKSPACE, UDP, Refused);
    check(NETWORK, UDP, Reached);
}

#[test]
fn full_mode_allows_tcp_unless_network_is_denied() {
    check(FULL, TCP, Reached);
    check(&["--mode", "full", "--network", "deny"], TCP, Refused);
}

#[test]
fn unix_socket_needs_flag_or_full_mode() {
    check(WORKSPACE, &python(PATHNAME), Refused);
    check(NETWORK, &python(PATHNAME), Refused);
    check(&["--unix-sockets", "allow"], &python(PATHNAME), Reached);
    check(FULL, &python(PATHNAME), Reached);
}

#[test]
fn unix_socket_can_be_denied_in_full_mode() {
    check(&["--mode", "full", "--unix-sockets", "deny"], &python(PATHNAME), Refused);
}

#[test]
fn abstract_unix_socket_needs_flag() {
    check(WORKSPACE, &python(ABSTRACT), Refused);
    check(NETWORK, &python(ABSTRACT), Refused);
    check(&["--mode", "network", "--unix-sockets", "allow"], &python(ABSTRACT), Reached);
}

#[test]
fn unix_datagrams_are_refused_except_in_full_mode() {
    check(WORKSPACE, &python(DATAGRAM), Refused);
    check(NETWORK, &python(DATAGRAM), Refused);
    check(FULL, &python(DATAGRAM), Reached);
}

#[test]
fn unix_datagram_from_socketpair_is_refused() {
    check(WORKSPACE, &python(DATAGRAM_OF_A_PAIR), Refused);
    check(NETWORK, &python(DATAGRAM_OF_A_PAIR), Refused);
}

#[test]
fn unix_stream_from_socketpair_is_refused() {
    let setup =
        "python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' $outside/socket";
    for kind in ["SOCK_STREAM", "SOCK_SEQPACKET"] {
        let connect = format!(
            "attempt(socket.socketpair(socket.AF_UNIX, socket.{kind})[0].connect, outside + '/socket')"
        );
        EscapeTrial { setup, ..TRIAL }.refused(&python(&connect));
    }
}

#[test]
fn ipv6_is_refused_in_workspace_mode_and_allowed_in_network_mode() {
    let connect = python("socket.create_connection(('::1', int(os.environ['port6'])))");
    check(WORKSPACE, &connect, Refused);
    check(NETWORK, &connect, Reached);
}

#[test]
fn other_socket_families_are_refused() {
    for flags in [WORKSPACE, NETWORK] {
        EscapeTrial { flags, ..TRIAL }.refused(&python(&format!(
            "for family in ({}, {}, {}, {}, {}, {}):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
        attempt(socket.socket, family, kind)",
            libc::AF_VSOCK,
            libc::AF_PACKET,
            libc::AF_ALG,
            libc::AF_KEY,
            libc::AF_BLUETOOTH,
            libc::AF_UNIX,
        )));
    }
}

#[test]
fn raw_sockets_are_refused() {
    for mode in ["workspace", "network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(&python(
            "attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW, 3)",
        ));
    }
}

/// A netlink socket may query interfaces but not change them. The request would set the loopback interface to its
/// current state.
#[test]
fn command_cannot_change_an_interface_by_netlink() {
    for mode in ["workspace", "network", "full"] {
        EscapeTrial { flags: &["--mode", mode], ..TRIAL }.refused(&python(
            "
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
message = struct.pack('=LHHLL', 32, 16, 5, 1, 0) + struct.pack('=BBHiII', 0, 0, 0, 1, 1, 1)
route.send(message)
code = struct.unpack_from('=i', route.recv(4096), 16)[0]
print('ESCAPED' if code == 0 else errno.errorcode[-code])",
        ));
    }
}

#[test]
fn loopback_inside_the_call_works() {
    for flags in [WORKSPACE, NETWORK, FULL] {
        EscapeTrial { flags, ..TRIAL }.granted(&python(
            "
server = socket.create_server(('127.0.0.1', 0))
client = socket.create_connection(server.getsockname())
client.sendall(b'granted'); client.close()
print(server.accept()[0].recv(100).decode())",
        ));
    }
}

/// The test's listeners, one for each kind of socket.
struct SocketListeners {
    tcp: TcpListener,
    tcp6: TcpListener,
    udp: UdpSocket,
    unix: UnixListener,
    datagrams: UnixDatagram,
    nameless: UnixListener,
    name: String,
}

impl SocketListeners {
    fn open(tree: &TestTree) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = unique_marker();
        let ears = Self {
            udp: UdpSocket::bind(tcp.local_addr().unwrap()).unwrap(),
            tcp,
            tcp6: TcpListener::bind("[::1]:0").unwrap(),
            unix: UnixListener::bind(tree.path("outside/socket")).unwrap(),
            datagrams: UnixDatagram::bind(tree.path("outside/datagrams")).unwrap(),
            nameless: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
            name,
        };
        for socket in ["outside/socket", "outside/datagrams"] {
            std::fs::set_permissions(tree.path(socket), PermissionsExt::from_mode(0o777)).unwrap();
        }
        ears.tcp.set_nonblocking(true).unwrap();
        ears.tcp6.set_nonblocking(true).unwrap();
        ears.udp.set_nonblocking(true).unwrap();
        ears.unix.set_nonblocking(true).unwrap();
        ears.datagrams.set_nonblocking(true).unwrap();
        ears.nameless.set_nonblocking(true).unwrap();
        ears
    }

    fn names(&self) -> String {
        let (port, port6) = (self.tcp.local_addr().unwrap().port(), self.tcp6.local_addr().unwrap().port());
        format!("export port={port} port6={port6} name={}", self.name)
    }

    /// Checks all listeners. Local sockets have delivered all data by the time the sender has exited.
    fn heard(&self) -> ConnectionOutcome {
        let mut bytes = [0; 64];
        let quiet = [
            self.tcp.accept().map(drop),
            self.tcp6.accept().map(drop),
            self.udp.recv(&mut bytes).map(drop),
            self.unix.accept().map(drop),
            self.datagrams.recv(&mut bytes).map(drop),
            self.nameless.accept().map(drop),
        ]
        .iter()
        .all(|heard| heard.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
        if quiet { Refused } else { Reached }
    }
}

/// Checks that the script reaches the listeners without a sandbox, and that it has the expected outcome with the flags.
#[track_caller]
fn check(flags: &[&str], script: &str, expected: ConnectionOutcome) {
    check_through(&[], flags, script, expected);
}

#[track_caller]
pub(crate) fn check_through(wrapper: &[&str], flags: &[&str], script: &str, expected: ConnectionOutcome) {
    for user in users() {
        let tree = TRIAL.arena(user);
        let ears = SocketListeners::open(&tree);
        let script = whole(&tree, &format!("{}\n{script}", ears.names()));
        let free = tree.unconfined(&script);
        assert_eq!(
            ears.heard(),
            Reached,
            "without the sandbox, the script does not connect, as {user:?}: {free:?}"
        );
        let ran = tree.confined(flags, &script).through(wrapper).output();
        tried(&ran);
        assert_eq!(ears.heard(), expected, "as {user:?} with {flags:?}: {ran:?}");
    }
}
