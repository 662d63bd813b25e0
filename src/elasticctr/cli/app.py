"""The `elasticctr` command and the table of its commands.

A command's module is imported only when that command runs or shows its own help: listings must be fast, and a server
must not keep the imports of other commands in memory.
"""

from __future__ import annotations

import typer

from elasticctr import __version__
from elasticctr.cli.tree import Entry, RootGroup

DATA, TRAINING, DISTRIBUTED = "Data", "Training", "Distributed training"
VERSIONS, CUBE, SERVING, TOOLS = "Versions", "Cube", "Serving", "Tools"

COMMANDS = {
    "data": Entry(
        "Inspect, convert, cache and synthesize click logs.",
        panel=DATA,
        commands={
            "inspect": Entry(
                "Show a log's format, slots, cardinalities, click-through rate and bad lines.", "data.inspect:inspect"
            ),
            "convert": Entry("Rewrite a log in another format.", "data.convert:convert"),
            "cache": Entry("Parse a log once and keep its samples in memory-mapped files.", "data.cache:cache"),
            "buckets": Entry(
                "Compute the edges of quantile buckets and write them to the schema.", "data.buckets:buckets"
            ),
            "vocabulary": Entry(
                "Count feasigns and keep the frequent ones as a vocabulary.", "data.vocabulary:vocabulary"
            ),
            "synth": Entry("Generate a synthetic click log whose best attainable AUC is known.", "data.synth:synth"),
        },
    ),
    "train": Entry("Train and evaluate a model, in one process or many.", "train.train:train", TRAINING),
    "eval": Entry("Evaluate a trained model on any data with the same schema.", "train.evaluate:evaluate", TRAINING),
    "predict": Entry("Score samples with a trained model.", "train.predict:predict", TRAINING),
    "explain": Entry(
        "Show which slots a model relies on and what each adds to a prediction.", "train.explain:explain", TRAINING
    ),
    "report": Entry("Regenerate a run's plots and HTML report.", "train.report:report", TRAINING),
    "tune": Entry("Search for good settings of a job.", "train.tune:tune", TRAINING),
    "run": Entry("Run a configuration file of PaddleRec.", "train.run:run", TRAINING),
    "coordinator": Entry("Run the coordinator of a distributed job.", "roles.coordinator:coordinator", DISTRIBUTED),
    "pserver": Entry("Run a parameter server of a distributed job.", "roles.pserver:pserver", DISTRIBUTED),
    "trainer": Entry("Run a trainer of a distributed job.", "roles.trainer:trainer", DISTRIBUTED),
    "status": Entry("Show the progress and the roles of a distributed run.", "roles.status:status", DISTRIBUTED),
    "logs": Entry("Print the logs of a distributed run.", "roles.logs:logs", DISTRIBUTED),
    "checkpoint": Entry("Write a checkpoint of a distributed run now.", "roles.control:checkpoint", DISTRIBUTED),
    "stop": Entry("Write a checkpoint and stop a distributed run.", "roles.control:stop", DISTRIBUTED),
    "publish": Entry(
        "Publish a trained run as an immutable, numbered version and make it live.",
        "versions.publish:publish",
        VERSIONS,
    ),
    "versions": Entry(
        "List, verify, prune and roll back published versions.",
        panel=VERSIONS,
        commands={
            "list": Entry("List the versions in a repository and mark the live one.", "versions.listing:list_versions"),
            "verify": Entry(
                "Verify the files and scores of a version, or the checkpoints of a run.", "versions.verify:verify"
            ),
            "prune": Entry("Remove old versions that nothing uses.", "versions.prune:prune"),
            "rollback": Entry("Make an earlier version live again.", "versions.rollback:rollback"),
            "fsck": Entry("Check a repository for damage and repair its donefiles.", "versions.fsck:fsck"),
        },
    ),
    "cube": Entry(
        "Build, serve and query the Cube, the sparse parameter service.",
        panel=CUBE,
        commands={
            "build": Entry("Build the index files that Cube servers open.", "cube.build:build"),
            "compact": Entry("Merge a chain of built versions into one base.", "cube.build:compact"),
            "export": Entry("Export the rows of a published version for other systems.", "cube.export:export"),
            "inspect": Entry(
                "Show the header and some rows of an index file, or check all of it.", "cube.inspect:inspect"
            ),
            "server": Entry("Run a Cube server.", "cube.server:server"),
            "agent": Entry("Run the agent of a Cube server, which fetches and activates versions.", "cube.agent:agent"),
            "transfer": Entry(
                "Run the transfer, which rolls versions out to all Cube servers.", "cube.transfer:transfer"
            ),
            "status": Entry("Show every replica with its versions and state.", "cube.status:status"),
            "get": Entry("Look up rows, from Cube servers or from index files.", "cube.get:get"),
            "bench": Entry("Measure the throughput and latency of lookups.", "cube.bench:bench"),
        },
    ),
    "serve": Entry("Run a prediction server.", "serve.serve:serve", SERVING),
    "call": Entry(
        "Send samples to prediction servers and report scores, latencies and errors.", "serve.call:call", SERVING
    ),
    "serving": Entry(
        "Control which versions a running prediction server answers from.",
        panel=SERVING,
        commands={
            "status": Entry("Show the versions and variants of a served model.", "serve.serving:status"),
            "activate": Entry("Activate a version and hold it.", "serve.serving:activate"),
            "rollback": Entry("Return to the previously live version and hold it.", "serve.serving:rollback"),
            "pause": Entry("Stop activating newly published versions.", "serve.serving:pause"),
            "resume": Entry("Follow newly published versions again.", "serve.serving:resume"),
            "variants": Entry("Start, change or end an experiment between versions.", "serve.serving:variants"),
            "promote": Entry("Make a variant's version live and end the experiment.", "serve.serving:promote"),
        },
    ),
    "feedback": Entry(
        "Turn served requests and clicks into training samples.",
        panel=SERVING,
        commands={
            "join": Entry("Join logged requests with clicks into training samples.", "feedback.join:join"),
            "replay": Entry(
                "Replay logged requests through the trainer's code and compare the scores.", "feedback.replay:replay"
            ),
        },
    ),
    "demo": Entry(
        "Run the whole system on this machine: train, publish, serve and predict.", "demo.command:demo", TOOLS
    ),
    "doctor": Entry("Check this machine and installation.", "doctor:doctor", TOOLS),
    "token": Entry("Generate the secret that servers and clients share.", "token:token", TOOLS),
}


class _Root(RootGroup):
    table = COMMANDS


app = typer.Typer(
    name="elasticctr",
    cls=_Root,
    help="Train and serve click-through-rate models, from raw click logs to live predictions.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"elasticctr {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    app()
