/* SPDX-License-Identifier: MIT */
/* Functions that load the BPF object of sipprobe.bpf.c and attach all its hooks, or only one. */
#ifndef SIPSCHED_ATTACH_H
#define SIPSCHED_ATTACH_H
#include "hooks.h"
#include "probe.h"
#include "sipprobe.skel.h"

/* The loaded BPF programs of a run. sipprobe__destroy() detaches and unloads them. */
struct probe {
	struct sipprobe *object;
	enum mode_choice mode;
	char mode_reason[REASON_SIZE]; /* why the probe runs in tracepoint mode; empty in exact mode */
};

/* Print libbpf's warnings and information if `verbose` is true, otherwise print nothing. */
void set_libbpf_messages(bool verbose);

/* Load and attach one hook, then detach it. Store the result in `state`. */
void try_hook(const struct options *options, const struct hook *hook, struct hook_state *state);

/*
 * Load and attach the requested mode. For `auto`, use the best mode that loads. On failure, print one line and return
 * false.
 */
bool load_probe(const struct options *options, struct probe *probe);

/* Detach every hook. The programs stay loaded and keep their data. */
void detach_probe(struct probe *probe);
/* Attach the hooks again. On failure, detach all hooks and return an errno value, otherwise return 0. */
int attach_probe(struct probe *probe);
#endif
