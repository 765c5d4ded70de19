//! A DNS server over a real UDP socket that says what it is told.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use hickory_resolver::proto::op::{Message, MessageType, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record};
use tokio::net::UdpSocket;

/// What it says.
#[derive(Debug, Default)]
pub struct DnsState {
    /// Records by name, which ends in a dot.
    pub records: HashMap<String, Vec<RData>>,
    /// Whether it fails whatever it is asked.
    pub fails: bool,
    /// Seconds for which its answers are true.
    pub ttl: u32,
}

/// A running one; it ends with this.
pub struct FakeDns {
    pub address: SocketAddr,
    state: Arc<Mutex<DnsState>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for FakeDns {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeDns {
    /// Starts one that knows nothing.
    pub async fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (address, state) = (socket.local_addr().unwrap(), Arc::new(Mutex::new(DnsState::default())));
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut buffer = [0; 4_096];
            while let Ok((count, from)) = socket.recv_from(&mut buffer).await {
                let Ok(question) = Message::from_vec(&buffer[..count]) else { continue };
                let reply = shared.lock().unwrap().answer(&question);
                let _ = socket.send_to(&reply.to_vec().unwrap(), from).await;
            }
        });
        Self { address, state, task }
    }

    /// What it says.
    pub fn state(&self) -> MutexGuard<'_, DnsState> {
        self.state.lock().unwrap()
    }

    /// Says that a name has these records.
    pub fn says(&self, name: &str, records: impl IntoIterator<Item = RData>) {
        self.state().records.insert(name.to_owned(), records.into_iter().collect());
    }
}

impl DnsState {
    fn answer(&self, question: &Message) -> Message {
        let mut reply = Message::new(question.metadata.id, MessageType::Response, question.metadata.op_code);
        for query in &question.queries {
            reply.add_query(query.clone());
            let name = query.name().to_string();
            match (self.fails, self.records.get(&name)) {
                (true, _) => reply.metadata.response_code = ResponseCode::ServFail,
                (false, None) => reply.metadata.response_code = ResponseCode::NXDomain,
                (false, Some(records)) => {
                    let asked = records.iter().filter(|record| record.record_type() == query.query_type());
                    let answers =
                        asked.map(|data| Record::from_rdata(query.name().clone(), self.ttl, data.clone()));
                    reply.add_answers(answers.collect::<Vec<_>>());
                }
            }
        }
        reply
    }
}

/// An address as a record.
pub fn a(address: [u8; 4]) -> RData {
    RData::A(A(Ipv4Addr::from(address)))
}

/// A service as a record.
pub fn srv(target: &str, port: u16) -> RData {
    RData::SRV(SRV::new(0, 0, port, Name::from_ascii(target).unwrap()))
}
