/* SPDX-License-Identifier: MIT */
/* Functions that load the BPF programs of sipprobe, and attach all hooks of a mode or a single hook. */
#ifndef SIPSCHED_ATTACH_H
#define SIPSCHED_ATTACH_H
#include "hooks.h"
#include "probe.h"
#include "sipprobe.skel.h"

/* The loaded BPF programs of a run. sipprobe__destroy() detaches and unloads them. */
struct probe {
	struct sipprobe *object;
	enum mode_choice mode;
	char mode_reason[REASON_SIZE]; /* why the probe does not run in exact mode; empty in exact mode */
};

/* Print libbpf's warnings and information if `verbose` is true, otherwise print nothing. */
void set_libbpf_messages(bool verbose);

/* Load, attach and detach one hook, and store in `state` whether the kernel supports the hook. */
void try_hook(const struct options *options, const struct hook *hook, struct hook_state *state);

/*
 * Load and attach the requested mode. For `auto`, use the best mode that loads. On failure, print one line and return
 * false.
 */
bool load_probe(const struct options *options, struct probe *probe);

/* Detach every hook. The BPF programs stay loaded and keep their data for attach_probe(). */
void detach_probe(struct probe *probe);
/* Attach all hooks again, and return 0. On failure, detach all hooks and return an errno value. */
int attach_probe(struct probe *probe);
#endif
