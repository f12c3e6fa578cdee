/* SPDX-License-Identifier: MIT */
/* The hooks of the probe, and functions that find out which hooks this kernel supports. */
#ifndef SIPSCHED_HOOKS_H
#define SIPSCHED_HOOKS_H
#include <stdbool.h>
#include <stddef.h>
#include "options.h"

#define REASON_SIZE 256 /* size in bytes of the reason why a hook cannot be attached */
#define BTF_PATH    "/sys/kernel/btf/vmlinux"
#define N_HOOKS     23

enum hook_type {
	HOOK_TRACEPOINT,
	HOOK_FENTRY,
	HOOK_FEXIT
};

/*
 * The modes of the probe that use a hook. USE_BOTH means the modes `exact` and `tracepoint`, and USE_EVERY means all
 * modes. If a value ends in _OPTIONAL, the modes also work without the hook.
 */
enum hook_use {
	USE_BOTH,
	USE_BOTH_OPTIONAL,
	USE_EXACT,
	USE_TRACEPOINT,
	USE_STREAM,
	USE_STREAM_OPTIONAL,
	USE_EVERY
};

/*
 * A hook and its BPF programs. Kernels differ in the number of arguments that they pass to some hooks: `program`
 * expects `arguments`, and `other_program` expects `other_arguments`.
 */
struct hook {
	enum hook_type type;
	const char *target;
	enum hook_use use;
	const char *program;
	int arguments; /* number of arguments; -1: any number */
	const char *other_program;
	int other_arguments;
	const char *needed_for;
	const char *since;
};

extern const struct hook hooks[N_HOOKS];

/* Whether this kernel supports a hook, and the BPF program to attach. */
struct hook_state {
	const char *program; /* the program for this kernel; NULL: no program fits this kernel */
	bool available;
	char reason[REASON_SIZE];
};

const char *hook_type_name(enum hook_type type);
bool hook_in_mode(const struct hook *hook, enum mode_choice mode);
bool hook_is_optional(const struct hook *hook);

/* Store in `state` why a hook is unavailable: the failed step, and the kernel's errno value. */
void explain_refusal(const struct hook *hook, struct hook_state *state, const char *step, int error);

/*
 * Choose the program of each hook for this kernel. If this process can load no program at all, store the reason and return
 * false. Here and below, `states` has N_HOOKS elements.
 */
bool choose_programs(struct hook_state *states, char *reason, size_t size);

/* Return whether a mode works with the available hooks. If not, store a reason that names the first missing hook. */
bool mode_can_run(const struct hook_state *states, enum mode_choice mode, char *reason, size_t size);
#endif
