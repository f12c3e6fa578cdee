# The rules that all Makefiles of hardware/ share. A Makefile sets its variables, includes this file, and lists its own targets.
# Each program depends on all headers of ../common, so that `make` rebuilds the program after a change of a shared header.

CLANG        ?= clang
CLANG_FORMAT ?= clang-format
LLVM_STRIP   ?= llvm-strip
BPFTOOL      ?= $(or $(shell command -v bpftool),/usr/sbin/bpftool)
FUZZ_SECONDS ?= 20

CFLAGS   ?= -O2 -g
STANDARD ?= -std=gnu11 -D_GNU_SOURCE
WARNINGS := -Wall -Wextra -Werror
CFLAGS   += $(STANDARD) $(WARNINGS)
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=all
BPFLIBS  := -lbpf -lelf -lz

COMMON   := ../common
HEADERS  := $(wildcard *.h) $(wildcard $(COMMON)/*.h)

# SKELETON NAME generates a C header from a BPF object. A program includes the header to load the object.
define SKELETON
	$(BPFTOOL) gen skeleton $< name $(1) > $@.tmp
	mv $@.tmp $@
endef

# FUZZ PROGRAM LENGTH runs a fuzz target for FUZZ_SECONDS on inputs of at most LENGTH bytes. The first inputs are in
# build/corpus.
define FUZZ
	./$(1) -max_total_time=$(FUZZ_SECONDS) -max_len=$(2) -timeout=5 -rss_limit_mb=1024 \
		-print_final_stats=1 -artifact_prefix=build/findings/ build/corpus
endef

.DEFAULT_GOAL := all

format-check:
	$(CLANG_FORMAT) --dry-run -Werror $(wildcard *.c *.h)

.PHONY: all test fuzz format-check clean
.DELETE_ON_ERROR:
