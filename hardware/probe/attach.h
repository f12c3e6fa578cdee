/* SPDX-License-Identifier: MIT */
/* The BPF object of sipprobe.bpf.c: loaded and attached, whole or a hook alone. */
#ifndef SIPSCHED_ATTACH_H
#define SIPSCHED_ATTACH_H
#include "hooks.h"
#include "probe.h"
#include "sipprobe.skel.h"

/* What is attached for a run; sipprobe__destroy() lets go of it. */
struct probe {
	struct sipprobe *object;
	enum mode_choice mode;
	char mode_reason[REASON_SIZE]; /* why tracepoint mode; empty in exact mode */
};

/* Of libbpf's own messages: with `verbose` what it warns of and informs about, else nothing. */
void set_libbpf_messages(bool verbose);

/* Load and attach this hook alone, then let go of it; its state says how that went. */
void try_hook(const struct options *options, const struct hook *hook, struct hook_state *state);

/* Load and attach the mode asked for, or the better one that loads. False: a line on stderr says why. */
bool load_probe(const struct options *options, struct probe *probe);

/* Let go of every hook; the programs stay loaded and keep what they know. */
void detach_probe(struct probe *probe);
/* Attach again what was let go of; gives 0 or an errno value, and then nothing is attached. */
int attach_probe(struct probe *probe);
#endif
