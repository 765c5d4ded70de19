# The commands to remember; `cargo xtask` does the work.
check:
    cargo xtask check
test:
    ./test
sim *arguments:
    cargo xtask sim {{arguments}}
bench:
    cargo xtask bench
compare *arguments:
    cargo xtask compare {{arguments}}
reproduce *arguments:
    cargo xtask reproduce {{arguments}}
run *arguments:
    ./run {{arguments}}
