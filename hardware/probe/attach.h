/* SPDX-License-Identifier: MIT */
/* The BPF object of sipprobe.bpf.c: functions that load and attach the object, or one of its hooks. */
#ifndef SIPSCHED_ATTACH_H
#define SIPSCHED_ATTACH_H
#include "hooks.h"
#include "probe.h"
#include "sipprobe.skel.h"

/* The programs of a run. sipprobe__destroy() detaches and unloads them. */
struct probe {
	struct sipprobe *object;
	enum mode_choice mode;
	char mode_reason[REASON_SIZE]; /* the reason for tracepoint mode; empty in exact mode */
};

/* Print libbpf's warnings and information if `verbose` is true, otherwise nothing. */
void set_libbpf_messages(bool verbose);

/* Load and attach one hook, then detach it. `state` gets the result. */
void try_hook(const struct options *options, const struct hook *hook, struct hook_state *state);

/*
 * Load and attach the requested mode, or for `auto` the best mode that loads. On failure, print a line and return
 * false.
 */
bool load_probe(const struct options *options, struct probe *probe);

/* Detach every hook. The programs stay loaded and keep their data. */
void detach_probe(struct probe *probe);
/* Attach the hooks again. Return 0, or an errno value if this failed; then no hook is attached. */
int attach_probe(struct probe *probe);
#endif
