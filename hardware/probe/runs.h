/* SPDX-License-Identifier: MIT */
#ifndef SIPSCHED_RUNS_H
#define SIPSCHED_RUNS_H
#include <stdio.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

/*
 * Write the members `runs` and `run_ns` of a JSON object: the number of executions of all programs of a BPF object, and
 * the time of these executions in ns. The kernel counts both numbers only while kernel.bpf_stats_enabled is 1.
 */
static inline void write_runs(FILE *file, struct bpf_object *object)
{
	unsigned long long runs = 0, run_ns = 0;
	struct bpf_program *program;

	bpf_object__for_each_program(program, object)
	{
		struct bpf_prog_info info = { 0 };
		__u32 size = sizeof(info);

		if (bpf_program__fd(program) >= 0 &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size)) {
			runs += info.run_cnt;
			run_ns += info.run_time_ns;
		}
	}
	fprintf(file, "\"runs\": %llu, \"run_ns\": %llu", runs, run_ns);
}
#endif
