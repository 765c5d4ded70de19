//! A GPU that is none: the same kernels, compiled for the processor, behind the same trait.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CString, c_int, c_void};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};

use engine::device::cuda::{Address, Element, Factors, Gpu, GpuError, Graph, Grid, Linear};
use libloading::{Library, Symbol};

type Kernel = unsafe extern "C" fn(*const c_void);
type Launch = unsafe extern "C" fn(Kernel, *const c_void, *const u32, u32, u32, u32) -> c_int;

/// Where sums over ranks meet: every rank adds its numbers, in the order of ranks.
pub(crate) struct Meeting {
    ranks: usize,
    now: Mutex<Now>,
    wake: Condvar,
}

#[derive(Default)]
struct Now {
    round: u64,
    parts: HashMap<usize, Vec<f32>>,
    sum: Vec<f32>,
    is_broken: bool,
}

/// What was asked for, to be done again.
#[derive(Clone)]
enum Call {
    Launch(String, Grid, Vec<u8>),
    Linear(Linear),
    AllReduce(Address, usize),
}

struct Calls(Vec<Call>);

impl Graph for Calls {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Clusters of blocks that it has room for at once: few, so that each has several tiles.
const CLUSTERS: usize = 2;

/// A GPU of host memory.
pub(crate) struct Emulated {
    kernels: &'static Library,
    rank: usize,
    meeting: Arc<Meeting>,
    memory: Mutex<HashMap<u64, Box<[u128]>>>,
    host: Mutex<HashMap<u64, Box<[u128]>>>,
    recording: Mutex<Option<Vec<Call>>>,
    /// How often each kernel was launched, and products and sums over ranks run, since somebody asked.
    launches: Mutex<BTreeMap<String, u64>>,
    /// How many rows products had, since somebody asked.
    product_rows: Mutex<BTreeSet<usize>>,
    /// The kernels that ran, those of products too.
    ran: Mutex<BTreeSet<String>>,
    /// Launches, products and sums that were run, and graphs that were replayed.
    pub(crate) calls: AtomicU64,
    pub(crate) replays: AtomicU64,
    /// Which of the calls was the last that waited for all before it.
    pub(crate) awaited: AtomicU64,
    /// Bytes that may be allocated.
    pub(crate) room: AtomicU64,
    /// Allocations that succeed before one does not, of memory of the host too.
    pub(crate) allocations: AtomicU64,
    /// The call that fails, counted from now; 0: none does.
    pub(crate) fails_at: AtomicU64,
    /// Whether it records steps.
    pub(crate) records: AtomicBool,
    /// Whether warpgroups multiply.
    pub(crate) has_wgmma: AtomicBool,
    /// Whether blocks work in clusters.
    pub(crate) has_clusters: AtomicBool,
    /// Whether it comes to every sum as the last.
    pub(crate) is_slow: AtomicBool,
    /// Whether it comes to no sum any more; and whether it was to come to one.
    pub(crate) hangs: AtomicBool,
    pub(crate) is_hanging: AtomicBool,
    is_lost: AtomicBool,
}

/// GPUs, one rank each; `None`, with a word about it, where there is no compiler.
pub(crate) fn gpus(ranks: usize) -> Option<Vec<Arc<Emulated>>> {
    let kernels = kernels()?;
    let meeting = Arc::new(Meeting { ranks, now: Mutex::default(), wake: Condvar::new() });
    let gpu = |rank| {
        Arc::new(Emulated {
            kernels,
            rank,
            meeting: Arc::clone(&meeting),
            memory: Mutex::default(),
            host: Mutex::default(),
            recording: Mutex::default(),
            launches: Mutex::default(),
            product_rows: Mutex::default(),
            ran: Mutex::default(),
            calls: AtomicU64::new(0),
            replays: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            room: AtomicU64::new(1 << 30),
            allocations: AtomicU64::new(u64::MAX),
            fails_at: AtomicU64::new(0),
            records: AtomicBool::new(true),
            has_wgmma: AtomicBool::new(false),
            has_clusters: AtomicBool::new(true),
            is_slow: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            is_hanging: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        })
    };
    Some((0..ranks).map(gpu).collect())
}

/// The kernels, compiled once.
fn kernels() -> Option<&'static Library> {
    static KERNELS: OnceLock<Option<Library>> = OnceLock::new();
    KERNELS.get_or_init(compile).as_ref()
}

const FLAGS: [&str; 8] = [
    "-std=c++17",
    "-O2",
    "-shared",
    "-fPIC",
    "-Wall",
    "-Werror",
    "-Wno-unknown-pragmas",
    "-fno-strict-aliasing",
];

/// Compiles them, or takes what was compiled of the same text: each test may be a process of its own, and this takes a
/// processor half a minute. Processes that come meanwhile wait for it.
fn compile() -> Option<Library> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let compiler = || {
        let mut command = Command::new("c++");
        command.args(FLAGS).arg("-I").arg(root.join("src/device/cuda/kernels"));
        command.arg(root.join("tests/cuda/emulated.cpp"));
        command
    };
    let checked = |output: Output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let text = match compiler().arg("-E").output() {
        Err(error) => {
            eprintln!("skipped: no C++ compiler ({error})");
            return None;
        }
        Ok(output) => checked(output),
    };
    let mut hash = DefaultHasher::new();
    (FLAGS, text).hash(&mut hash);
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{:016x}.so", hash.finish()));
    let turn = File::create(built.with_extension("lock")).expect("a lock can be made");
    turn.lock().expect("who has it ends");
    if !built.exists() {
        // Under another name until it is whole: who is stopped meanwhile leaves no half.
        let part = built.with_extension(format!("{}.so", std::process::id()));
        checked(compiler().arg("-o").arg(&part).output().expect("the compiler runs"));
        std::fs::rename(part, &built).expect("it is kept");
    }
    drop(turn);
    // SAFETY: what it runs when it is loaded is its own constructors.
    Some(unsafe { Library::new(&built) }.expect("what was built can be loaded"))
}

impl Emulated {
    /// Counts a call; fails where one is to fail.
    fn count(&self) -> Result<(), GpuError> {
        if self.is_lost.load(Ordering::SeqCst) {
            return Err(GpuError::Lost("the context is poisoned".into()));
        }
        self.calls.fetch_add(1, Ordering::SeqCst);
        if self.fails_at.load(Ordering::SeqCst) > 0 && self.fails_at.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.is_lost.store(true, Ordering::SeqCst);
            return Err(GpuError::Lost("a launch failed".into()));
        }
        Ok(())
    }

    /// Counts an allocation; fails where no more succeed.
    fn count_allocation(&self, bytes: usize) -> Result<(), GpuError> {
        let left = |left: u64| left.checked_sub(1);
        let counted = self.allocations.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);
        counted.map(drop).map_err(|_| GpuError::OutOfMemory { bytes })
    }

    /// Whether nothing is allocated.
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty =
            |memory: &Mutex<HashMap<u64, Box<[u128]>>>| memory.lock().expect("no holder panics").is_empty();
        is_empty(&self.memory) && is_empty(&self.host)
    }

    /// What was launched since the last time that somebody asked, and how often.
    pub(crate) fn launched(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut *self.launches.lock().expect("no holder panics"))
    }

    /// Numbers of rows that products had since the last time that somebody asked.
    pub(crate) fn product_rows(&self) -> BTreeSet<usize> {
        std::mem::take(&mut *self.product_rows.lock().expect("no holder panics"))
    }

    /// The kernels that ran, those of products too.
    pub(crate) fn ran(&self) -> BTreeSet<String> {
        self.ran.lock().expect("no holder panics").clone()
    }

    /// Its largest stretch of memory, as it is now.
    pub(crate) fn largest(&self) -> Vec<u128> {
        let memory = self.memory.lock().expect("no holder panics");
        memory.values().max_by_key(|stretch| stretch.len()).expect("something is allocated").to_vec()
    }

    /// Runs a call, or takes it down.
    fn call(&self, call: Call) -> Result<(), GpuError> {
        if let Some(recorded) = &mut *self.recording.lock().expect("no holder panics") {
            recorded.push(call);
            return Ok(());
        }
        self.count()?;
        let name = match &call {
            Call::Launch(kernel, ..) => kernel.clone(),
            Call::Linear(_) => "a product".to_owned(),
            Call::AllReduce(..) => "a sum over ranks".to_owned(),
        };
        *self.launches.lock().expect("no holder panics").entry(name).or_default() += 1;
        match call {
            Call::Launch(kernel, grid, args) => self.run(&kernel, grid, &args),
            Call::Linear(product) => {
                self.product_rows.lock().expect("no holder panics").insert(product.rows);
                let multiprocessors = self.multiprocessors();
                let split = if self.has_clusters() { product.split() } else { None };
                let split = split.map(|(kernel, grid, args)| (kernel, grid.at_once(CLUSTERS), args));
                let few = || product.four_bit(multiprocessors).or_else(|| product.gated(multiprocessors));
                let whole = split.or_else(few);
                if whole.is_none() {
                    multiply(&product.bare());
                }
                if let Some((kernel, grid, args)) = whole.or_else(|| product.behind()) {
                    self.run(&kernel, grid, &args);
                }
            }
            Call::AllReduce(values, count) => return self.sum(values, count),
        }
        Ok(())
    }

    fn run(&self, kernel: &str, grid: Grid, args: &[u8]) {
        self.ran.lock().expect("no holder panics").insert(kernel.to_owned());
        let symbol = CString::new(format!("kernel_{kernel}")).expect("no zero");
        // The struct as it lies on a GPU: aligned for addresses.
        let mut aligned = vec![0_u64; args.len().div_ceil(8)];
        // SAFETY: both are as long as `args`; the kernel's struct is; what it points to is this GPU's memory.
        let failed = unsafe {
            std::ptr::copy_nonoverlapping(args.as_ptr(), aligned.as_mut_ptr().cast::<u8>(), args.len());
            let kernel: Symbol<'_, Kernel> =
                self.kernels.get(symbol.as_bytes_with_nul()).expect("the kernel is there");
            let launch: Symbol<'_, Launch> = self.kernels.get(b"emulated_launch\0").expect("it is there");
            let Grid { blocks, threads, shared, cluster } = grid;
            launch(*kernel, aligned.as_ptr().cast(), blocks.as_ptr(), threads, shared, cluster)
        };
        assert_eq!(
            failed, 0,
            "{kernel} {grid:?}: 1 is shared memory, 2 a barrier that not all threads reach, 3 a part of a cluster"
        );
    }

    fn sum(&self, values: Address, count: usize) -> Result<(), GpuError> {
        let Meeting { ranks, now, wake } = &*self.meeting;
        if *ranks == 1 {
            return Ok(());
        }
        // SAFETY: the caller's memory, of this length.
        let values = unsafe { std::slice::from_raw_parts_mut(values.0 as *mut f32, count) };
        let mut now = now.lock().expect("no holder panics");
        let (is_slow, hangs) = (&self.is_slow, &self.hangs);
        self.is_hanging.store(hangs.load(Ordering::SeqCst), Ordering::SeqCst);
        while !now.is_broken
            && (hangs.load(Ordering::SeqCst)
                || is_slow.load(Ordering::SeqCst) && now.parts.len() + 1 < *ranks)
        {
            now = wake.wait(now).expect("no holder panics");
        }
        let round = now.round;
        now.parts.insert(self.rank, values.to_vec());
        wake.notify_all();
        if now.parts.len() == *ranks {
            let mut sum = vec![0.0; count];
            for rank in 0..*ranks {
                sum.iter_mut().zip(&now.parts[&rank]).for_each(|(sum, part)| *sum += part);
            }
            now.parts.clear();
            (now.sum, now.round) = (sum, round + 1);
            wake.notify_all();
        }
        while now.round == round && !now.is_broken {
            now = wake.wait(now).expect("no holder panics");
        }
        if now.is_broken {
            return Err(GpuError::OtherRank);
        }
        values.copy_from_slice(&now.sum);
        Ok(())
    }
}

/// The product, number by number, as a GPU makes it: factors as they are kept, sums in single precision.
fn multiply(product: &Linear) {
    let Linear { rows, outputs, inputs, factors, x, w, bias, y, out, adds, scales: _, gate: _ } = *product;
    if factors == Factors::E4m3 {
        assert!(outputs % 16 == 0 && inputs % 16 == 0 && bias.is_none() && out == Element::F32);
    }
    let (x, w) = (read_factors(x, rows * inputs, factors), read_factors(w, outputs * inputs, factors));
    let bias = bias.map(|bias| numbers(bias, outputs, out));
    let before = if adds { numbers(y, rows * outputs, out) } else { Vec::new() };
    for row in 0..rows {
        for output in 0..outputs {
            let pairs = x[row * inputs..][..inputs].iter().zip(&w[output * inputs..][..inputs]);
            let mut sum: f32 = pairs.map(|(x, w)| x * w).sum();
            sum += bias.as_ref().map_or(0.0, |bias| bias[output]);
            let at = row * outputs + output;
            sum += before.get(at).copied().unwrap_or(0.0);
            // SAFETY: `y` has room for rows times outputs numbers of its kind.
            unsafe {
                match out {
                    Element::F32 => *(y.0 as *mut f32).add(at) = sum,
                    Element::Bf16 => *(y.0 as *mut half::bf16).add(at) = half::bf16::from_f32(sum),
                    Element::F16 => *(y.0 as *mut half::f16).add(at) = half::f16::from_f32(sum),
                }
            }
        }
    }
}

fn read_factors(from: Address, count: usize, factors: Factors) -> Vec<f32> {
    match factors {
        Factors::Of(element) => numbers(from, count, element),
        Factors::Q4(_) => panic!("a kernel multiplies weights of four bits"),
        // SAFETY: the caller's memory, of this length.
        Factors::E4m3 => unsafe { std::slice::from_raw_parts(from.0 as *const u8, count) }
            .iter()
            .map(|bits| float8::F8E4M3::from_bits(*bits).to_f32())
            .collect(),
    }
}

fn numbers(from: Address, count: usize, element: Element) -> Vec<f32> {
    // SAFETY: the caller's memory, of this length.
    unsafe {
        match element {
            Element::F32 => std::slice::from_raw_parts(from.0 as *const f32, count).to_vec(),
            Element::Bf16 => {
                let halves = std::slice::from_raw_parts(from.0 as *const half::bf16, count);
                halves.iter().map(|number| number.to_f32()).collect()
            }
            Element::F16 => {
                let halves = std::slice::from_raw_parts(from.0 as *const half::f16, count);
                halves.iter().map(|number| number.to_f32()).collect()
            }
        }
    }
}

impl Gpu for Emulated {
    fn name(&self) -> String {
        "emulated".to_owned()
    }

    fn has_wgmma(&self) -> bool {
        self.has_wgmma.load(Ordering::SeqCst)
    }

    fn has_clusters(&self) -> bool {
        self.has_clusters.load(Ordering::SeqCst)
    }

    fn has_e4m3(&self) -> bool {
        true
    }

    /// Few, so that blocks of threads have several tasks.
    fn multiprocessors(&self) -> usize {
        2
    }

    fn available(&self) -> Result<usize, GpuError> {
        Ok(self.room.load(Ordering::SeqCst) as usize)
    }

    fn allocate(&self, bytes: usize) -> Result<Address, GpuError> {
        self.count_allocation(bytes)?;
        let left = |room: u64| room.checked_sub(bytes as u64);
        if self.room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_err() {
            return Err(GpuError::OutOfMemory { bytes });
        }
        let memory = vec![0_u128; bytes.div_ceil(16)].into_boxed_slice();
        let address = memory.as_ptr() as u64;
        self.memory.lock().expect("no holder panics").insert(address, memory);
        Ok(Address(address))
    }

    fn free(&self, address: Address) {
        let freed = self.memory.lock().expect("no holder panics").remove(&address.0);
        let freed = freed.expect("it was allocated, and is freed once");
        self.room.fetch_add(freed.len() as u64 * 16, Ordering::SeqCst);
    }

    fn write(&self, to: Address, bytes: &[u8]) -> Result<(), GpuError> {
        self.count()?;
        // SAFETY: the caller's memory, of this length at least.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0 as *mut u8, bytes.len()) };
        Ok(())
    }

    fn read(&self, from: Address, bytes: &mut [u8]) -> Result<(), GpuError> {
        self.count()?;
        self.awaited.store(self.calls.load(Ordering::SeqCst), Ordering::SeqCst);
        // SAFETY: the same.
        unsafe { std::ptr::copy_nonoverlapping(from.0 as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn allocate_host(&self, bytes: usize) -> Result<Address, GpuError> {
        self.count_allocation(bytes)?;
        let memory = vec![u128::MAX; bytes.div_ceil(16)].into_boxed_slice();
        let address = memory.as_ptr() as u64;
        self.host.lock().expect("no holder panics").insert(address, memory);
        Ok(Address(address))
    }

    fn free_host(&self, address: Address) {
        let freed = self.host.lock().expect("no holder panics").remove(&address.0);
        assert!(freed.is_some(), "it was allocated, and is freed once");
    }

    fn copy_out(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.copy(from, to, bytes)
    }

    fn copy_back(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.copy(from, to, bytes)
    }

    fn copy(&self, from: Address, to: Address, bytes: usize) -> Result<(), GpuError> {
        self.count()?;
        // SAFETY: the caller's memory, of this length.
        unsafe { std::ptr::copy(from.0 as *const u8, to.0 as *mut u8, bytes) };
        Ok(())
    }

    fn launch(&self, kernel: &str, grid: Grid, args: &[u8]) -> Result<(), GpuError> {
        self.call(Call::Launch(kernel.to_owned(), grid, args.to_vec()))
    }

    fn linear(&self, product: &Linear) -> Result<(), GpuError> {
        self.call(Call::Linear(*product))
    }

    fn all_reduce(&self, values: Address, count: usize) -> Result<(), GpuError> {
        self.call(Call::AllReduce(values, count))
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.meeting.ranks
    }

    fn abort(&self) {
        self.meeting.now.lock().expect("no holder panics").is_broken = true;
        self.meeting.wake.notify_all();
    }

    fn record(
        &self,
        work: &mut dyn FnMut() -> Result<(), GpuError>,
    ) -> Result<Option<Box<dyn Graph>>, GpuError> {
        if !self.records.load(Ordering::SeqCst) {
            return Ok(None);
        }
        *self.recording.lock().expect("no holder panics") = Some(Vec::new());
        let worked = work();
        let calls = self.recording.lock().expect("no holder panics").take().expect("it was begun");
        worked?;
        Ok(Some(Box::new(Calls(calls))))
    }

    fn replay(&self, graph: &dyn Graph) -> Result<(), GpuError> {
        self.replays.fetch_add(1, Ordering::SeqCst);
        let calls = graph.as_any().downcast_ref::<Calls>().expect("it is of this kind");
        calls.0.iter().try_for_each(|call| self.call(call.clone()))
    }
}
