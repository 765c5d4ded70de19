//! How far `marginal-work` is from the best of RelServe's policies on every machine that was fitted here, as a
//! Markdown table: `cargo run --release -p sim --example regret [MACHINE] [SEEDS] [LOADS] [SHAPES] [KEY=VALUE]..`.

#![expect(clippy::print_stdout, reason = "a report is its purpose")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::regret::{MachineCase, PUBLISHED, Regret, Shape, machines, service_seconds, trace};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let settings: Vec<String> = args.extract_if(.., |arg| arg.contains('=')).collect();
    let arg = |place: usize, default: &str| args.get(place).cloned().unwrap_or_else(|| default.to_owned());
    let (wanted, seeds) = (arg(0, ""), arg(1, "3").parse::<u64>()?);
    let loads: Vec<u32> = arg(2, "50,80,110,160").split(',').map(str::parse).collect::<Result<_, _>>()?;
    let shapes = arg(3, "one,bursts,bulk,peers");
    let shapes: Vec<Shape> = Shape::ALL.into_iter().filter(|shape| shapes.contains(shape.name())).collect();
    let mut cases: Vec<MachineCase> =
        machines().into_iter().filter(|case| case.name.contains(&wanted)).collect();
    for case in &mut cases {
        for setting in &settings {
            sim::set(&mut case.config.scheduler, setting)?;
        }
    }
    let cells: Vec<(usize, Shape, u32)> = (0..cases.len())
        .flat_map(|case| shapes.iter().map(move |shape| (case, *shape)))
        .flat_map(|(case, shape)| loads.iter().map(move |load| (case, shape, *load)))
        .collect();
    let done: Mutex<Vec<Option<Regret>>> = Mutex::new(vec![None; cells.len()]);
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((case, shape, load)) = cells.get(number) else { return };
            let config = &cases[*case].config;
            let regret = service_seconds(config).and_then(|service| {
                let traces: Vec<_> =
                    (0..seeds).map(|seed| trace(*shape, *load, service, 100, seed)).collect();
                Regret::of(&traces, config)
            });
            match regret {
                Ok(regret) => done.lock().expect("no thread panics")[number] = Some(regret),
                Err(error) => println!("{}, {}: {error}", cases[*case].name, shape.name()),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    print!("| machine | shape | load % | marginal-work s |");
    PUBLISHED.iter().for_each(|policy| print!(" {policy} s |"));
    println!(" mean x best | p99 x its |\n| --- | --- |{}", " ---: |".repeat(4 + PUBLISHED.len()));
    let done = done.into_inner()?;
    for ((case, shape, load), regret) in cells.iter().zip(&done) {
        let Some(regret) = regret else { continue };
        print!("| {} | {} | {load} | {:.3} |", cases[*case].name, shape.name(), regret.own.mean);
        regret.published.iter().for_each(|one| print!(" {:.3} |", one.mean));
        println!(" {:.3} | {:.2} |", regret.mean(), regret.p99());
    }
    let means: Vec<f64> = done.iter().flatten().map(Regret::mean).collect();
    let above = means.iter().filter(|mean| **mean > 1.01).count();
    let worst = means.iter().copied().fold(0.0, f64::max);
    let log = means.iter().map(|mean| mean.ln()).sum::<f64>() / means.len().max(1) as f64;
    println!(
        "\n{} cells, {above} above 1.01, the worst {worst:.3}, geometric mean {:.3}",
        means.len(),
        log.exp()
    );
    Ok(())
}
