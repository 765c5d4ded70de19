//! Products of gates and what they gate, which kernels of few rows activate as they write them.

use std::sync::Arc;

use engine::device::cuda::{Element, Factors, Gpu};

use crate::emulated;
use crate::products::{ProductCase, check};

#[test]
fn products_of_few_rows_activate_what_is_gated_as_they_write_it() {
    let Some(gpus) = emulated::gpus(1) else { return };
    let gpu = Arc::clone(&gpus[0]) as Arc<dyn Gpu>;
    for (kind, factors, out) in [
        ("bf16", Factors::Of(Element::Bf16), Element::Bf16),
        ("f16", Factors::Of(Element::F16), Element::F16),
        ("e4m3_bf16", Factors::E4m3, Element::Bf16),
        ("e4m3_f16", Factors::E4m3, Element::F16),
    ] {
        for (rows, most, inputs, activation, has_bias) in
            [(1, 8, 48, 1, false), (8, 8, 2_208, 3, true), (11, 16, 48, 1, true), (29, 32, 48, 3, false)]
        {
            let outputs = 2 * 80; // more pieces than blocks
            let activation = Some(activation);
            let case = ProductCase { factors, out, rows, outputs, inputs, has_bias, adds: false, activation };
            check(&gpu, case, |product| {
                gpus[0].launched();
                gpu.linear(product).expect("it runs");
                assert_eq!(gpus[0].launched().len(), 1, "nothing but the product");
            });
            let name = format!("product_gated_{kind}_{most}");
            assert!(gpus[0].ran().contains(&name), "{case:?} is not by {name}: {:?}", gpus[0].ran());
        }
    }
}
