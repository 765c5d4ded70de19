//! The real program as an operator starts and stops it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Starts `relserve serve` with its built-in model and waits for the last line it says.
pub fn start(folder: &std::path::Path) -> (Child, Vec<String>) {
    run(&mut serve(folder))
}

/// The command that serves with its files in a folder.
fn serve(folder: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder);
    command
}

/// Starts a command that serves and waits for the last line it says.
pub fn run(command: &mut Command) -> (Child, Vec<String>) {
    // With SQL, how to reach it is said last.
    let last = if command.get_args().any(|arg| arg == "--sql") { "SQL: " } else { "Try: " };
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let is_last = line.starts_with(last);
        said.push(line);
        if is_last {
            break;
        }
    }
    (server, said)
}

/// What stands behind `part` in what the program said.
pub fn told<'a>(said: &'a [String], part: &str) -> Option<&'a str> {
    said.iter().find_map(|line| line.split_once(part).map(|(_, rest)| rest))
}

/// The key of operators of a [`Program`] that was started without more.
pub const OPERATOR_KEY: &str = "operators";

/// The program on a new folder, killed at the end of its test.
pub struct Program {
    process: Child,
    /// Its URL.
    pub address: String,
    /// The key of its first start.
    pub key: String,
    /// The port of SQL, where it was asked for.
    pub sql_port: Option<u16>,
}

impl Program {
    /// With a key of operators, and further sections of its configuration.
    pub fn start(folder: &std::path::Path, sections: &str) -> Self {
        let config = folder.join("operators.toml");
        std::fs::write(&config, format!("[auth]\nadmin_key = \"{OPERATOR_KEY}\"\n{sections}")).unwrap();
        Self::configured(folder, |command| {
            command.arg("--config").arg(&config);
        })
    }

    /// The same, told more.
    pub fn configured(folder: &std::path::Path, more: impl FnOnce(&mut Command)) -> Self {
        let mut command = serve(folder);
        more(&mut command);
        Self::of(&mut command)
    }

    /// What a command serves.
    pub fn of(command: &mut Command) -> Self {
        let (process, said) = run(command);
        let told = |part| told(&said, part).expect("a first start says it").to_owned();
        let sql_port = self::told(&said, " -p ").and_then(|rest| rest.split(' ').next()?.parse().ok());
        Self { process, address: format!("http://{}", told(" on http://")), key: told("API key: "), sql_port }
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks it to stop, as a supervisor does.
    pub fn terminate(&self) {
        let sent = Command::new("kill").args(["-TERM", &self.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// How it ends.
    pub fn ended(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks it to stop, as a supervisor does.
pub fn terminate(mut server: Child) -> ExitStatus {
    let sent = Command::new("kill").args(["-TERM", &server.id().to_string()]).status().unwrap();
    assert!(sent.success());
    server.wait().unwrap()
}

#[test]
fn without_a_terminal_the_first_key_goes_to_a_file_of_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("first-key");
    let (server, said) = run(serve(folder.path()).env_remove("RELSERVE_SHOW_KEY"));
    let key = std::fs::read_to_string(&path).unwrap();
    let key = key.trim();
    assert!(key.starts_with("rs-") && !said.iter().any(|line| line.contains(key)), "{said:?}");
    assert!(said.iter().any(|line| line.contains(&path.display().to_string())), "{said:?}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let url = format!("{}/v1/usage", told(&said, " on ").unwrap());
    let header = format!("Authorization: Bearer {key}");
    match Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &header, &url])
        .output()
    {
        Ok(asked) => assert_eq!(String::from_utf8_lossy(&asked.stdout), "200"),
        Err(_) => eprintln!("skipped: there is no curl"),
    }
    assert_eq!(terminate(server).code(), Some(0));
    let again = || {
        let (server, said) = run(serve(folder.path()).env_remove("RELSERVE_SHOW_KEY"));
        assert_eq!(terminate(server).code(), Some(0));
        said
    };
    let (said, wrote) = (again(), format!("the first start wrote one to {}", path.display()));
    assert!(said.iter().any(|line| line.contains(&wrote)), "{said:?}");
    std::fs::remove_file(&path).unwrap();
    let said = again();
    assert!(said.iter().any(|line| line.contains("the first start showed one")), "{said:?}");
}

#[test]
fn a_start_waits_for_its_database_and_a_signal_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A proxy whose Postgres is not up: it takes connections and ends them.
    std::thread::spawn(move || listener.incoming().for_each(drop));
    let database = format!("postgres://relserve:secret@{address}/relserve");
    let mut command = serve(folder.path());
    command.args(["--database", &database]).env_remove("RELSERVE_LOG");
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = Vec::new();
    let waits = log.any(|line| {
        said.push(line);
        said.last().is_some_and(|line| line.contains("waiting for the database"))
    });
    assert!(waits && !said.concat().contains("secret"), "{said:?}");
    assert_eq!(terminate(server).code(), Some(0), "{said:?}");
    // Until then it can write there.
    drop(log);

    let config = folder.path().join("hasty.toml");
    std::fs::write(&config, "[store]\nstart_wait_s = 0\n").unwrap();
    let mut command = serve(folder.path());
    command.args(["--database", &database, "--config"]).arg(&config);
    let ended = command.output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("the store is away") && !said.contains("waiting"), "{said}");
}

#[test]
fn a_first_start_shows_a_key_once_and_sigterm_ends_it_with_success() {
    let folder = tempfile::tempdir().unwrap();
    let keys = |said: &[String]| said.iter().filter(|line| line.starts_with("API key: rs-")).count();
    let (server, said) = start(folder.path());
    assert_eq!(keys(&said), 1, "{said:?}");
    assert_eq!(terminate(server).code(), Some(0));
    let (server, said) = start(folder.path());
    assert_eq!(keys(&said), 0, "{said:?}");
    assert_eq!(terminate(server).code(), Some(0));
}

#[test]
fn a_first_start_that_cannot_listen_makes_no_key_that_nobody_sees() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let relserve = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
        command.arg("--data-dir").arg(folder.path()).args(arguments).stdin(Stdio::null()).output().unwrap()
    };
    let start = relserve(&["serve", "--listen", &address]);
    assert!(!start.status.success());
    assert!(String::from_utf8_lossy(&start.stderr).contains(&address), "the address is named");
    let list = relserve(&["key", "list", "--yes"]);
    assert!(list.status.success() && list.stdout.is_empty(), "{list:?}");
}

#[test]
fn a_model_that_cannot_be_read_ends_the_start_with_an_error_that_names_it() {
    use engine::checkpoint::Synthetic;
    use engine::checkpoint::config::Family;
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let (weights, config) = (model.join("model.safetensors"), model.join("config.json"));
    let remove = || std::fs::remove_file(&weights).unwrap();
    let cut = || std::fs::File::options().write(true).open(&weights).unwrap().set_len(1_000).unwrap();
    let spoil = || std::fs::write(&config, "{").unwrap();
    let widen = || {
        let text = std::fs::read_to_string(&config).unwrap();
        let mut fields: serde_json::Value = serde_json::from_str(&text).unwrap();
        fields["intermediate_size"] = (2 * fields["intermediate_size"].as_u64().unwrap()).into();
        std::fs::write(&config, fields.to_string()).unwrap();
    };
    let damages: [(&dyn Fn(), &str); 4] = [
        (&remove, "model.safetensors"),
        (&cut, "truncated"),
        (&spoil, "config.json"),
        (&widen, "the configuration asks for"),
    ];
    for (damage, named) in damages {
        Synthetic::tiny(Family::Llama, 1).write(&model).unwrap();
        damage();
        let mut command = serve(&folder.path().join("data"));
        command.args(["--device", "cpu", "--model"]).arg(&model).stdin(Stdio::null());
        let ended = command.output().unwrap();
        let [told, error] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert_eq!(ended.status.code(), Some(1), "{named}: {error}");
        assert!(error.contains("error: ") && error.contains(named), "{named}: {error}");
        assert!(!told.contains(" on http://"), "it was never ready: {told}");
    }
}

#[test]
fn two_servers_of_one_name_do_not_share_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let (first, _) = start(folder.path());
    let second = serve(folder.path()).output().unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("`store.node`") && said.contains("`relserve`"), "{said}");
    let other = folder.path().join("other.toml");
    std::fs::write(&other, "[store]\nnode = \"other\"\n").unwrap();
    let (second, said) = run(serve(folder.path()).arg("--config").arg(&other));
    assert!(told(&said, " on http://").is_some(), "{said:?}");
    assert_eq!([terminate(first).code(), terminate(second).code()], [Some(0), Some(0)]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_start_raises_the_limit_of_open_files_to_what_its_connections_need() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_relserve")]);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder.path());
    let (server, _) = run(&mut command);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
    assert_eq!(terminate(server).code(), Some(0));
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let mut numbers = files.split_whitespace().map_while(|number| number.parse::<u64>().ok());
    let (soft, hard) = (numbers.next().unwrap(), numbers.next().unwrap());
    assert!(soft > 64 && (soft == hard || soft > 20_000), "{files}");
}
