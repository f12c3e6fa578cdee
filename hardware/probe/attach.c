// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <bpf/libbpf.h>
#include "attach.h"
#include "system.h"

static bool verbose;

static int print_libbpf(enum libbpf_print_level level, const char *format, va_list arguments)
{
	if (!verbose || level == LIBBPF_DEBUG)
		return 0;
	return vfprintf(stderr, format, arguments);
}

void set_libbpf_messages(bool wanted)
{
	verbose = wanted;
	libbpf_set_print(print_libbpf);
}

static struct sipprobe *open_object(const struct options *options, enum mode_choice mode)
{
	struct sipprobe *object = sipprobe__open();
	struct bpf_program *program;

	if (!object)
		return NULL;
	object->rodata->cfg_port = (__u16)options->port;
	object->rodata->cfg_ports = (__u16)options->ports;
	object->rodata->cfg_netns = proxy_namespace(options);
	object->rodata->cfg_ipv6 = options->watch;
	object->rodata->cfg_snippet = (__u32)options->snippet_bytes;
	object->rodata->cfg_exact = mode == MODE_EXACT;
	object->rodata->cfg_peer_port = (__u16)options->peer_port;
	bpf_map__set_max_entries(object->maps.ring, (__u32)options->ring_bytes);
	bpf_object__for_each_program(program, object->obj) bpf_program__set_autoload(program, false);
	return object;
}

static void select_program(struct sipprobe *object, const char *name)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object->obj, name);

	bpf_program__set_autoload(program, true);
}

void try_hook(const struct options *options, const struct hook *hook, struct hook_state *state)
{
	enum mode_choice mode = hook_in_mode(hook, MODE_TRACEPOINT) ? MODE_TRACEPOINT
				: hook_in_mode(hook, MODE_EXACT)    ? MODE_EXACT
								    : MODE_STREAM;
	struct sipprobe *object;
	int error;

	if (!state->program)
		return;
	object = open_object(options, mode);
	if (!object) {
		explain_refusal(hook, state, "open", errno);
		return;
	}
	select_program(object, state->program);
	error = sipprobe__load(object);
	if (error) {
		explain_refusal(hook, state, "load", -error);
	} else {
		error = sipprobe__attach(object);
		if (error)
			explain_refusal(hook, state, "attach", -error);
		else
			state->available = true;
	}
	sipprobe__destroy(object);
}

/* Load and attach all hooks of one mode of the probe. Return NULL and set `error` if the kernel refuses a hook. */
static struct sipprobe *load_mode(const struct options *options, enum mode_choice mode,
				  const struct hook_state *states, int *error)
{
	struct sipprobe *object = open_object(options, mode);

	if (!object) {
		*error = errno;
		return NULL;
	}
	for (size_t i = 0; i < N_HOOKS; i++) {
		if (hook_in_mode(&hooks[i], mode) && states[i].program)
			select_program(object, states[i].program);
	}
	*error = -sipprobe__load(object);
	if (!*error)
		*error = -sipprobe__attach(object);
	if (!*error)
		return object;
	sipprobe__destroy(object);
	return NULL;
}

/* Load a mode. On failure, load each hook alone to find the hook that the kernel refuses, and store the reason. */
static struct sipprobe *load_or_explain(const struct options *options, enum mode_choice mode,
					struct hook_state *states, char *reason, size_t size)
{
	struct sipprobe *object;
	int error = 0;

	for (size_t i = 0; i < N_HOOKS; i++) {
		if (hook_in_mode(&hooks[i], mode) && !hook_is_optional(&hooks[i]) && !states[i].program) {
			snprintf(reason, size, "%s: %.200s", hooks[i].target, states[i].reason);
			return NULL;
		}
	}
	object = load_mode(options, mode, states, &error);
	if (object)
		return object;
	for (size_t i = 0; i < N_HOOKS; i++) {
		if (!hook_in_mode(&hooks[i], mode) || hook_is_optional(&hooks[i]))
			continue;
		try_hook(options, &hooks[i], &states[i]);
		if (!states[i].available)
			break; /* the reason names only the first refused hook */
	}
	if (mode_can_run(states, mode, reason, size))
		snprintf(reason, size, "each hook loads alone, but the hooks do not load together: %s",
			 strerror(error));
	return NULL;
}

bool load_probe(const struct options *options, struct probe *probe)
{
	struct hook_state states[N_HOOKS];
	char reason[REASON_SIZE];

	if (!choose_programs(states, reason, sizeof(reason))) {
		complain("%s", reason);
		return false;
	}
	probe->mode = options->mode == MODE_AUTO ? MODE_EXACT : options->mode;
	probe->object = load_or_explain(options, probe->mode, states, reason, sizeof(reason));
	if (!probe->object && options->mode == MODE_AUTO) {
		memcpy(probe->mode_reason, reason, sizeof(reason));
		probe->mode = MODE_TRACEPOINT;
		probe->object = load_or_explain(options, probe->mode, states, reason, sizeof(reason));
	} else if (probe->object && options->mode == MODE_TRACEPOINT) {
		snprintf(probe->mode_reason, sizeof(probe->mode_reason), "tracepoint mode was asked for");
	} else if (probe->object && options->mode == MODE_STREAM) {
		snprintf(probe->mode_reason, sizeof(probe->mode_reason), "SIP over TCP");
	}
	if (!probe->object)
		complain("%s mode cannot run: %s", mode_name(probe->mode), reason);
	return probe->object;
}

void detach_probe(struct probe *probe)
{
	sipprobe__detach(probe->object);
}

int attach_probe(struct probe *probe)
{
	int error = -sipprobe__attach(probe->object);

	if (error)
		detach_probe(probe);
	return error;
}
