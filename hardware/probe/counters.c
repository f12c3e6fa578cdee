// SPDX-License-Identifier: MIT
#include <stddef.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include "counters.h"

struct probe_counters sum_counters(const struct sipprobe *object)
{
	struct probe_counters sum = { 0 };

	for (size_t cpu = 0; cpu < PROBE_CPUS; cpu++) {
		const struct probe_counters *of_cpu = &object->bss->counters[cpu];

#define ADD(name) sum.name += of_cpu->name;
		PROBE_COUNTERS(ADD, PROBE_NO_COUNTER)
		PROBE_DESCRIPTOR_COUNTERS(ADD)
#undef ADD
	}
	return sum;
}

struct probe_counters counters_between(const struct probe_counters *before,
				       const struct probe_counters *after)
{
	struct probe_counters difference = { 0 };

#define SUBTRACT(name) difference.name = after->name - before->name;
	PROBE_COUNTERS(SUBTRACT, PROBE_NO_COUNTER)
	PROBE_DESCRIPTOR_COUNTERS(SUBTRACT)
#undef SUBTRACT
	return difference;
}

uint64_t recursion_misses(const struct sipprobe *object)
{
	struct bpf_program *program;
	uint64_t misses = 0;

	bpf_object__for_each_program(program, object->obj)
	{
		struct bpf_prog_info info = { 0 };
		__u32 size = sizeof(info);

		if (bpf_program__fd(program) >= 0 &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size))
			misses += info.recursion_misses;
	}
	return misses;
}
