//! Products by clusters of blocks, each against what it is defined to give.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::checkpoint::Dtype;
use engine::checkpoint::config::Family;
use engine::checkpoint::synthetic::Synthetic;
use engine::device::cuda::{Address, Element, Factors, Gate, Gpu, Linear};
use engine::{Keep, Quantize};

use crate::common::{Blocks, Row, tokens};
use crate::emulated::{self, Emulated};
use crate::on_card;
use crate::products::{ProductCase, check};
use crate::{BLOCK, Running, load};

/// Runs cases, each by the kernel of its name, and compares them.
fn check_all(gpus: &[Arc<Emulated>], cases: Vec<(ProductCase, &str)>) {
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    for (case, name) in cases {
        check(&gpu, case, |product| gpu.linear(product).expect("it runs"));
        assert!(gpus[0].ran().contains(name), "{case:?} is not by {name}: {:?}", gpus[0].ran());
    }
}

const PLAIN: ProductCase = ProductCase {
    factors: Factors::Of(Element::Bf16),
    out: Element::F32,
    rows: 13,
    outputs: 24,
    inputs: 256,
    has_bias: true,
    adds: false,
    activation: None,
};

/// Products as they are.
fn plain() -> Vec<(ProductCase, &'static str)> {
    use Element::{Bf16, F16};
    let halves = |element: Element| ProductCase { factors: Factors::Of(element), ..PLAIN };
    let fp8 = ProductCase { factors: Factors::E4m3, inputs: 640, ..PLAIN };
    vec![
        // Several tiles of a warp, and warps with fewer than others.
        (ProductCase { adds: true, outputs: 1_032, inputs: 576, ..PLAIN }, "product_split_bf16_f32_16"),
        // `x` goes round: blocks of a cluster have 15 and 16 chunks, which two passes of 7 do not hold.
        (
            ProductCase { out: Bf16, rows: 29, outputs: 360, inputs: 3_904, ..PLAIN },
            "product_split_bf16_bf16_32",
        ),
        (ProductCase { rows: 9, out: F16, ..halves(F16) }, "product_split_f16_f16_16"),
        (ProductCase { rows: 32, adds: true, has_bias: false, ..halves(F16) }, "product_split_f16_f32_32"),
        (ProductCase { out: Bf16, outputs: 96, ..fp8 }, "product_split_e4m3_bf16_16"),
        (
            ProductCase { rows: 31, outputs: 40, inputs: 4_224, adds: true, ..fp8 },
            "product_split_e4m3_f32_32",
        ),
        (ProductCase { rows: 17, out: F16, ..fp8 }, "product_split_e4m3_f16_32"),
    ]
}

/// Products with weights of four bits.
fn of_four_bits() -> Vec<(ProductCase, &'static str)> {
    use Element::{Bf16, F16, F32};
    let q4 = |element: Element, out: Element| ProductCase {
        factors: Factors::Q4(element),
        out,
        inputs: 512,
        ..PLAIN
    };
    vec![
        (ProductCase { outputs: 328, adds: true, ..q4(Bf16, F32) }, "product_split_q4_bf16_f32_16"),
        (
            ProductCase { rows: 31, outputs: 72, inputs: 4_224, ..q4(Bf16, Bf16) },
            "product_split_q4_bf16_bf16_32",
        ),
        (ProductCase { rows: 32, outputs: 64, ..q4(F16, F32) }, "product_split_q4_f16_f32_32"),
        (
            ProductCase { rows: 33, outputs: 200, inputs: 576, ..q4(Bf16, F32) },
            "product_split_q4_bf16_f32_64",
        ),
        (ProductCase { rows: 64, inputs: 4_480, adds: true, ..q4(F16, F32) }, "product_split_q4_f16_f32_64"),
        (ProductCase { rows: 50, ..q4(F16, F16) }, "product_split_q4_f16_f16_64"),
    ]
}

/// Products of gates and what they gate.
fn of_gates() -> Vec<(ProductCase, &'static str)> {
    use Element::{Bf16, F16};
    let gated = |factors: Factors, out: Element| ProductCase { factors, out, activation: Some(1), ..PLAIN };
    let halves = |element: Element| gated(Factors::Of(element), element);
    let fp8 = |out: Element| gated(Factors::E4m3, out);
    vec![
        (ProductCase { outputs: 2 * 40, ..halves(Bf16) }, "product_split_gated_bf16_16"),
        (
            ProductCase { rows: 29, outputs: 2 * 168, inputs: 576, ..halves(Bf16) },
            "product_split_gated_bf16_32",
        ),
        (
            ProductCase { rows: 32, has_bias: false, outputs: 2 * 24, ..halves(F16) },
            "product_split_gated_f16_32",
        ),
        (ProductCase { outputs: 2 * 328, inputs: 512, ..fp8(Bf16) }, "product_split_gated_e4m3_bf16_16"),
        (
            ProductCase { rows: 30, outputs: 2 * 168, inputs: 768, ..fp8(F16) },
            "product_split_gated_e4m3_f16_32",
        ),
    ]
}

#[test]
fn products_by_clusters_are_the_sums_over_their_inputs() {
    let Some(gpus) = emulated::gpus(1) else { return };
    check_all(&gpus, plain());
}

#[test]
fn products_of_four_bits_by_clusters_are_those_of_what_is_unpacked() {
    let Some(gpus) = emulated::gpus(1) else { return };
    check_all(&gpus, of_four_bits());
}

#[test]
fn products_by_clusters_activate_what_is_gated_as_they_write_it() {
    let Some(gpus) = emulated::gpus(1) else { return };
    check_all(&gpus, of_gates());
}

#[test]
fn products_by_clusters_on_a_card_are_the_same() {
    let Some(cuda) = on_card::runtime() else { return };
    let gpus = cuda.open(&[0], false).expect("the GPU opens");
    if !gpus[0].has_clusters() {
        eprintln!("skipped: no clusters of blocks");
        return;
    }
    for (case, _) in plain().into_iter().chain(of_four_bits()).chain(of_gates()) {
        // By name: of so many rows a product is the library's here, which rounds what it activates.
        check(&gpus[0], case, |product| {
            let (kernel, grid, args) = product.split().expect("clusters have it");
            gpus[0].launch(&kernel, grid, &args).expect("it runs");
        });
    }
}

#[test]
fn what_clusters_do_not_divide_has_the_kernels_of_few_rows() {
    let product = |case: ProductCase| Linear {
        rows: case.rows,
        outputs: case.outputs,
        inputs: case.inputs,
        factors: case.factors,
        x: Address(0),
        w: Address(0),
        bias: None,
        y: Address(0),
        out: case.out,
        adds: false,
        scales: None,
        gate: case.activation.map(|activation| Gate { activation, wide: Address(0), most: None }),
    };
    let is_split = |case: ProductCase| product(case).split().is_some();
    assert!(is_split(PLAIN));
    let q4 = Factors::Q4(Element::Bf16);
    for (case, why) in [
        (ProductCase { rows: 8, ..PLAIN }, "few rows"),
        (ProductCase { rows: 33, ..PLAIN }, "many"),
        (ProductCase { rows: 65, factors: q4, inputs: 512, ..PLAIN }, "many of four bits"),
        (ProductCase { outputs: 20, ..PLAIN }, "outputs that are no eights"),
        (ProductCase { outputs: 24, activation: Some(1), ..PLAIN }, "gates that are none"),
        (ProductCase { inputs: 288, ..PLAIN }, "a part of a chunk"),
        (ProductCase { inputs: 192, ..PLAIN }, "a block without inputs"),
        (ProductCase { factors: q4, inputs: 512 + 64, ..PLAIN }, "a part of a chunk of four bits"),
        (ProductCase { factors: Factors::Of(Element::F32), ..PLAIN }, "single precision"),
    ] {
        assert!(!is_split(case), "{why}");
    }
}

/// What a prompt of 40 tokens runs, of a model of four bits whose products into the residual stream have 512 inputs.
fn kernels_of_a_prompt(has_clusters: bool) -> Option<BTreeSet<String>> {
    let gpus = emulated::gpus(1)?;
    gpus[0].has_clusters.store(has_clusters, Ordering::SeqCst);
    let mut model = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 61) };
    (model.config.head_dim, model.config.intermediate) = (16, 512);
    let keep = Keep { quantize: Some(Quantize::Q4), ..Keep::default() };
    let mut running = Running::new(load(&model, &gpus, keep).expect("it fits"));
    let row = Row::new(1, tokens(model.seed, 40), 96, BLOCK, &mut Blocks::default());
    running.compute(&[row.slot(0..40)]).expect("nothing fails");
    Some(gpus[0].ran())
}

#[test]
fn weights_of_four_bits_are_not_unpacked_for_up_to_64_rows_where_there_are_clusters() {
    let name = "product_split_q4_bf16_f32_64";
    let Some(with) = kernels_of_a_prompt(true) else { return };
    assert!(with.contains(name), "{with:?}");
    let without = kernels_of_a_prompt(false).expect("there is a compiler");
    assert!(!without.contains(name) && without.contains("unpack_q4_bf16"), "{without:?}");
}
