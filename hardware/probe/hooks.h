/* SPDX-License-Identifier: MIT */
/* The hooks of the probe, and which of them this kernel has. */
#ifndef SIPSCHED_HOOKS_H
#define SIPSCHED_HOOKS_H
#include <stdbool.h>
#include <stddef.h>
#include "options.h"

#define REASON_SIZE 256 /* of a text that says why not */
#define BTF_PATH    "/sys/kernel/btf/vmlinux"
#define N_HOOKS     23

enum hook_type {
	HOOK_TRACEPOINT,
	HOOK_FENTRY,
	HOOK_FEXIT
};

/* In which modes a hook is used (BOTH: of datagrams), and whether the mode can do without it. */
enum hook_use {
	USE_BOTH,
	USE_BOTH_OPTIONAL,
	USE_EXACT,
	USE_TRACEPOINT,
	USE_STREAM,
	USE_STREAM_OPTIONAL,
	USE_EVERY
};

/* Older kernels may give the target another number of arguments: then another program serves. */
struct hook {
	enum hook_type type;
	const char *target;
	enum hook_use use;
	const char *program;
	int arguments; /* -1: not looked at */
	const char *other_program;
	int other_arguments;
	const char *needed_for;
	const char *since;
};

extern const struct hook hooks[N_HOOKS];

/* What became of a hook on this kernel. */
struct hook_state {
	const char *program; /* NULL: nothing to attach */
	bool available;
	char reason[REASON_SIZE];
};

const char *hook_type_name(enum hook_type type);
bool hook_in_mode(const struct hook *hook, enum mode_choice mode);
bool hook_is_optional(const struct hook *hook);

/* Note why a hook is not to be had: at which step the kernel gave which error. */
void explain_refusal(const struct hook *hook, struct hook_state *state, const char *step, int error);

/*
 * Choose the program of each hook for this kernel. False, with the reason, where no program can be loaded at all.
 * `states` has N_HOOKS elements, here and below.
 */
bool choose_programs(struct hook_state *states, char *reason, size_t size);

/* Whether a mode can run with what is available; if not, the reason names the first hook that is missing. */
bool mode_can_run(const struct hook_state *states, enum mode_choice mode, char *reason, size_t size);
#endif
