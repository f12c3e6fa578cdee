// SPDX-License-Identifier: MIT
/*
 * sipsim predicts the performance of a SIP proxy server under the Linux scheduler by a model.
 *
 * Its results are predictions and not measurements. The program has one thread. The same model file always produces the
 * same bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "output.h"

static const char USAGE[] =
	"usage: sipsim version\n"
	"       sipsim run MODEL REPORT [TRACE CALLS UAC [PLAN BLOCKS LOG]]\n"
	"       sipsim replay MODEL REPORT SCHEDULE [TRACE]\n"
	"MODEL is a file of lines `name = value`. PLAN (plan.h) and BLOCKS (../common/schedule.h) belong\n"
	"to a run that compares modes. The program writes the other files: the model's counters, and the\n"
	"trace, the calls, the UAC's report and the log of the switches as on a real testbed. `replay`\n"
	"starts the calls of SCHEDULE (../common/schedule.h) instead of the calls that MODEL describes.\n";

static int complain(const char *where, const char *what)
{
	fprintf(stderr, "sipsim: %s: %s\n", where, what);
	return 1;
}

static bool write_file(const char *path, bool (*write)(struct sim *, FILE *), struct sim *sim)
{
	FILE *file = fopen(path, "wb");
	bool good = file && write(sim, file) && !ferror(file);

	return file && fclose(file) == 0 && good;
}

static bool write_uac(struct sim *sim, FILE *file)
{
	output_uac(sim, file);
	return true;
}

static bool write_report(struct sim *sim, FILE *file)
{
	output_report(sim, file);
	return true;
}

/* Simulate the load, and write the trace if its path is not NULL. If an error occurs, print a message and return 1. */
static int simulate(struct sim *sim, const char *model, const char *path)
{
	FILE *trace = NULL;
	const char *wrong;

	if (path) {
		trace = fopen(path, "wb");
		if (!trace)
			return complain(path, strerror(errno));
		trace_open(sim, trace);
	}
	wrong = sim_run(sim);
	if (trace && fclose(trace) && !wrong)
		wrong = "cannot write the trace";
	return wrong ? complain(model, wrong) : 0;
}

static int run(int n, char **paths)
{
	static struct plan plan;
	struct sim sim = { 0 };
	struct model model;
	char error[256];
	const char *wrong = model_read(&model, paths[0], error, sizeof(error));

	if (wrong)
		return complain(paths[0], wrong);
	if (n > 5) {
		wrong = plan_read(&plan, paths[5], &model, error, sizeof(error));
		if (wrong)
			return complain(paths[5], wrong);
		plan.blocks = paths[6];
		sim.switches.plan = &plan;
	}
	wrong = sim_init(&sim, &model);
	if (wrong)
		return complain(paths[0], wrong);
	if (simulate(&sim, paths[0], n > 2 ? paths[2] : NULL))
		return 1;
	/* write the calls first, because output_calls() decides the outcome of each call */
	if (n > 2 && !write_file(paths[3], output_calls, &sim))
		return complain(paths[3], "cannot write");
	if (n > 2 && !write_file(paths[4], write_uac, &sim))
		return complain(paths[4], "cannot write");
	if (n > 5 && !write_file(paths[7], switches_write, &sim))
		return complain(paths[7], "cannot write");
	if (!write_file(paths[1], write_report, &sim))
		return complain(paths[1], "cannot write");
	sim_free(&sim);
	plan_free(&plan);
	return 0;
}

static int replay(int n, char **paths)
{
	struct sim sim = { .replayed = paths[2] };
	struct model model;
	char error[256];
	const char *wrong = model_read(&model, paths[0], error, sizeof(error));

	if (wrong)
		return complain(paths[0], wrong);
	wrong = sim_init(&sim, &model);
	if (wrong)
		return complain(paths[2], wrong);
	if (simulate(&sim, paths[0], n > 3 ? paths[3] : NULL))
		return 1;
	if (!write_file(paths[1], write_report, &sim))
		return complain(paths[1], "cannot write");
	sim_free(&sim);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "version")) {
		printf("sipsim %d\n", SIPSIM_VERSION);
		return 0;
	}
	if ((argc == 4 || argc == 7 || argc == 10) && !strcmp(argv[1], "run"))
		return run(argc - 2, argv + 2);
	if ((argc == 5 || argc == 6) && !strcmp(argv[1], "replay"))
		return replay(argc - 2, argv + 2);
	fputs(USAGE, stderr);
	return 2;
}
