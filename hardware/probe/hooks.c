// SPDX-License-Identifier: MIT
#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include "hooks.h"
#include "system.h"

#define ANY (-1)
/* clang-format off */
const struct hook hooks[] = {
	{ HOOK_TRACEPOINT, "netif_rx", USE_BOTH_OPTIONAL,
	  "on_netif_rx", ANY, NULL, 0, "t_arr (veth, loopback)", NULL },
	{ HOOK_TRACEPOINT, "napi_gro_receive_entry", USE_BOTH_OPTIONAL,
	  "on_napi_gro_receive", ANY, NULL, 0, "t_arr (NAPI drivers)", NULL },
	{ HOOK_TRACEPOINT, "netif_receive_skb_entry", USE_BOTH_OPTIONAL,
	  "on_netif_receive_entry", ANY, NULL, 0, "t_arr (drivers without GRO)", NULL },
	{ HOOK_TRACEPOINT, "netif_receive_skb", USE_BOTH,
	  "on_netif_receive", ANY, NULL, 0, "counting arrivals; t_arr (other drivers)", NULL },
	{ HOOK_TRACEPOINT, "sk_data_ready", USE_TRACEPOINT,
	  "on_data_ready", ANY, NULL, 0, "t_stack", "6.3" },
	{ HOOK_FENTRY, "__udp_enqueue_schedule_skb", USE_EXACT,
	  "on_enqueue", 2, NULL, 0, "t_stack", NULL },
	{ HOOK_FEXIT, "__skb_recv_udp", USE_EXACT,
	  "on_dequeue", 4, "on_dequeue_noblock", 5, "t_sockq", NULL },
	{ HOOK_TRACEPOINT, "udp_fail_queue_rcv_skb", USE_BOTH,
	  "on_refused", 3, "on_refused_no_skb", 2, "drops", NULL },
	{ HOOK_TRACEPOINT, "sys_exit", USE_BOTH,
	  "on_sys_exit", ANY, NULL, 0, "t_sip_in", NULL },
	{ HOOK_TRACEPOINT, "sys_enter", USE_BOTH,
	  "on_sys_enter", ANY, NULL, 0, "t_sip_out", NULL },
	{ HOOK_TRACEPOINT, "net_dev_queue", USE_BOTH,
	  "on_device_queue", ANY, NULL, 0, "t_dep", NULL },
	{ HOOK_TRACEPOINT, "net_dev_start_xmit", USE_BOTH,
	  "on_start_xmit", ANY, NULL, 0, "t_dep", NULL },
	{ HOOK_TRACEPOINT, "sched_switch", USE_EVERY,
	  "on_switch", ANY, NULL, 0, "off_cpu_ns, bound of t_sockq", NULL },
	{ HOOK_TRACEPOINT, "netif_rx", USE_STREAM_OPTIONAL,
	  "on_stream_netif_rx", ANY, NULL, 0, "TCP: t_arr (veth, loopback)", NULL },
	{ HOOK_TRACEPOINT, "napi_gro_receive_entry", USE_STREAM_OPTIONAL,
	  "on_stream_gro_receive", ANY, NULL, 0, "TCP: t_arr (NAPI drivers)", NULL },
	{ HOOK_TRACEPOINT, "netif_receive_skb_entry", USE_STREAM_OPTIONAL,
	  "on_stream_receive_entry", ANY, NULL, 0, "TCP: t_arr (drivers without GRO)", NULL },
	{ HOOK_TRACEPOINT, "netif_receive_skb", USE_STREAM,
	  "on_stream_receive", ANY, NULL, 0, "TCP: t_arr (other drivers)", NULL },
	{ HOOK_TRACEPOINT, "tcp_probe", USE_STREAM,
	  "on_stream_queued", ANY, NULL, 0, "TCP: t_stack", NULL },
	{ HOOK_TRACEPOINT, "tcp_rcv_space_adjust", USE_STREAM,
	  "on_stream_taken", ANY, NULL, 0, "TCP: t_sockq", NULL },
	{ HOOK_TRACEPOINT, "sys_exit", USE_STREAM,
	  "on_stream_return", ANY, NULL, 0, "TCP: t_sip_in", NULL },
	{ HOOK_TRACEPOINT, "sys_enter", USE_STREAM,
	  "on_stream_call", ANY, NULL, 0, "TCP: t_sip_out", NULL },
	{ HOOK_TRACEPOINT, "net_dev_start_xmit", USE_STREAM,
	  "on_stream_departed", ANY, NULL, 0, "TCP: t_dep", NULL },
	{ HOOK_TRACEPOINT, "inet_sock_set_state", USE_STREAM,
	  "on_stream_state", ANY, NULL, 0, "TCP: connections that are opened and closed", NULL },
};
/* clang-format on */

const char *hook_type_name(enum hook_type type)
{
	static const char *const names[] = { "tp_btf", "fentry", "fexit" };

	return names[type];
}

bool hook_in_mode(const struct hook *hook, enum mode_choice mode)
{
	switch (hook->use) {
	case USE_EXACT:
		return mode == MODE_EXACT;
	case USE_TRACEPOINT:
		return mode == MODE_TRACEPOINT;
	case USE_STREAM:
	case USE_STREAM_OPTIONAL:
		return mode == MODE_STREAM;
	case USE_EVERY:
		return true;
	default:
		return mode != MODE_STREAM;
	}
}

bool hook_is_optional(const struct hook *hook)
{
	return hook->use == USE_BOTH_OPTIONAL || hook->use == USE_STREAM_OPTIONAL;
}

void explain_refusal(const struct hook *hook, struct hook_state *state, const char *step, int error)
{
	const char *name = hook_type_name(hook->type);

	if (error == EPERM)
		snprintf(state->reason, sizeof(state->reason),
			 "%s refused at %s: EPERM (kernel lockdown, LSM or missing capability)", name, step);
	else if (error == EACCES)
		snprintf(state->reason, sizeof(state->reason),
			 "%s refused at %s by the verifier (--verbose shows its log)", name, step);
	else
		snprintf(state->reason, sizeof(state->reason), "%s failed at %s: %s", name, step,
			 strerror(error));
}

/* Try to load an empty program for the hook's function. Return 0, or the kernel's errno value. */
static int function_refused(const struct btf *btf, const struct hook *hook)
{
	const struct bpf_insn nothing[] = { { .code = BPF_ALU64 | BPF_MOV | BPF_K },
					    { .code = BPF_JMP | BPF_EXIT } };
	int id = btf__find_by_name_kind(btf, hook->target, BTF_KIND_FUNC);
	int program;
	LIBBPF_OPTS(bpf_prog_load_opts, options, .attach_btf_id = (__u32)id,
		    .expected_attach_type = hook->type == HOOK_FENTRY ? BPF_TRACE_FENTRY : BPF_TRACE_FEXIT);

	program = bpf_prog_load(BPF_PROG_TYPE_TRACING, "nothing", "GPL", nothing, 2, &options);
	if (program < 0)
		return -program;
	close(program);
	return 0;
}

/* Return the number of arguments of the hook's target according to BTF, or -1 if the kernel lacks the target. */
static int target_arguments(const struct btf *btf, const struct hook *hook)
{
	const struct btf_type *type;
	char name[128];
	int id;

	if (hook->type == HOOK_TRACEPOINT) {
		/*
		 * Exclude the type's first argument, which is the program's context and not an argument of the
		 * tracepoint.
		 */
		snprintf(name, sizeof(name), "btf_trace_%s", hook->target);
		id = btf__find_by_name_kind(btf, name, BTF_KIND_TYPEDEF);
		if (id < 0)
			return -1;
		type = btf__type_by_id(btf, btf__type_by_id(btf, (__u32)id)->type);
		return btf_vlen(btf__type_by_id(btf, type->type)) - 1;
	}
	id = btf__find_by_name_kind(btf, hook->target, BTF_KIND_FUNC);
	if (id < 0)
		return -1;
	return btf_vlen(btf__type_by_id(btf, btf__type_by_id(btf, (__u32)id)->type));
}

/*
 * Choose the hook's program for this kernel. If the target is missing in BTF, or if the kernel refuses an empty program,
 * store the reason instead. The empty program is tried first, because loading it takes 0.2 ms and a whole mode 0.1 s.
 */
static void choose_program(const struct btf *btf, const struct hook *hook, struct hook_state *state)
{
	const char *kind = hook->type == HOOK_TRACEPOINT ? "tracepoint" : "function";
	int arguments = target_arguments(btf, hook);
	int error = arguments < 0 || hook->type == HOOK_TRACEPOINT ? 0 : function_refused(btf, hook);

	memset(state, 0, sizeof(*state));
	if (error)
		explain_refusal(hook, state, "load", error);
	else if (arguments < 0)
		snprintf(state->reason, sizeof(state->reason), "%s %s is not in this kernel's BTF%s%s%s",
			 kind, hook->target, hook->since ? " (added in " : "", hook->since ? hook->since : "",
			 hook->since ? ")" : "");
	else if (hook->arguments == ANY || hook->arguments == arguments)
		state->program = hook->program;
	else if (hook->other_program && hook->other_arguments == arguments)
		state->program = hook->other_program;
	else
		snprintf(state->reason, sizeof(state->reason),
			 "%s %s has %d arguments here, but this probe supports no such kernel", kind,
			 hook->target, arguments);
}

/* Return whether the kernel allows this process to load and attach BPF programs. */
static bool may_load_programs(void)
{
	const uint64_t needed = 1ULL << CAP_BPF | 1ULL << CAP_PERFMON;
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long effective = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		sscanf(line, "CapEff: %llx", &effective);
	if (file)
		fclose(file);
	return geteuid() == 0 || (effective & needed) == needed;
}

bool choose_programs(struct hook_state *states, char *reason, size_t size)
{
	struct btf *btf;

	reason[0] = 0;
	memset(states, 0, N_HOOKS * sizeof(*states));
	if (!may_load_programs())
		snprintf(reason, size,
			 "not root: loading BPF programs needs root, or CAP_BPF and CAP_PERFMON");
	else if (namespace_of("/proc/self/ns/pid") != INITIAL_PID_NS)
		snprintf(reason, size,
			 "not in the initial PID namespace: thread ids differ from the kernel's thread ids");
	else if (access(BTF_PATH, R_OK))
		snprintf(reason, size, "no kernel BTF: %s: %s (CONFIG_DEBUG_INFO_BTF)", BTF_PATH,
			 strerror(errno));
	if (!reason[0]) {
		btf = btf__load_vmlinux_btf();
		if (btf) {
			for (size_t i = 0; i < N_HOOKS; i++)
				choose_program(btf, &hooks[i], &states[i]);
			btf__free(btf);
			return true;
		}
		snprintf(reason, size, "cannot read kernel BTF %s: %s", BTF_PATH, strerror(errno));
	}
	for (size_t i = 0; i < N_HOOKS; i++)
		snprintf(states[i].reason, sizeof(states[i].reason), "%s", reason);
	return false;
}

bool mode_can_run(const struct hook_state *states, enum mode_choice mode, char *reason, size_t size)
{
	reason[0] = 0;
	for (size_t i = 0; i < N_HOOKS; i++) {
		if (!hook_in_mode(&hooks[i], mode) || hook_is_optional(&hooks[i]) || states[i].available)
			continue;
		snprintf(reason, size, "%s: %.200s", hooks[i].target, states[i].reason);
		return false;
	}
	return true;
}
