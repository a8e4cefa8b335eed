"""The quiz of notebook 12: padding, set_epoch, shards, who waits for whom, seeds, decoded bytes."""

from labkit.lab.quizzes import Option, Question

QUESTIONS = (
    Question(
        "10 samples, 4 ranks, `DistributedSampler` as it comes. What does an evaluation count?",
        (
            Option(
                "Each sample once: shares are disjoint.",
                "They are only where the ranks divide the length. Here the list is padded.",
            ),
            Option(
                "12 samples, two of them twice.",
                "Each rank reads 3. Weigh them, drop the repeated ones, or evaluate on one rank.",
                right=True,
            ),
            Option(
                "8 samples, and two are left out.",
                "That is `drop_last=True`, which is not the default.",
            ),
        ),
    ),
    Question(
        "Every epoch of a job on 8 ranks has the same order. `shuffle=True` is set, the workers "
        "are persistent. What mends it?",
        (
            Option(
                "`sampler.set_epoch(epoch)` before each `iter(loader)`.",
                "The sampler's seed is seed + epoch, and the epoch stays 0 unless it is told. It "
                "lives in the main process of the rank, so workers that stay do not matter.",
                right=True,
            ),
            Option(
                "New workers in each epoch.",
                "Workers get indices; they never see the sampler.",
            ),
            Option(
                "Another seed for each rank's sampler.",
                "Then the ranks deal out different packs of cards: some samples come twice, others "
                "never.",
            ),
        ),
    ),
    Question(
        "3 ranks with 4 workers each read an unsharded `IterableDataset`. How often does each "
        "sample come?",
        (
            Option(
                "Once: the ranks share it out.",
                "Nobody does that for a stream: there is no sampler that could.",
            ),
            Option(
                "3 times, once in each rank.",
                "The 4 workers of a rank have a copy of the dataset each, too.",
            ),
            Option(
                "12 times.",
                "Every worker of every rank gives all of it.",
                right=True,
            ),
        ),
    ),
    Question(
        "Rank 3 has one batch fewer than the others and goes on to the evaluation, whose first "
        "`all_reduce` has the same shape as the gradients'. What happens?",
        (
            Option(
                "The two meet, and both results are wrong.",
                "Collectives have no names: the n-th of one rank meets the n-th of another.",
                right=True,
            ),
            Option(
                "An error: the two do not belong together.",
                "Nobody can know that: size and type agree.",
            ),
            Option(
                "The others leave their last step out.",
                "They do not know that a rank has ended, unless they ask or use `Join`.",
            ),
        ),
    ),
    Question(
        "The network is the scarcest resource, and cores are left over. Which way does not help?",
        (
            Option(
                "Copying the data to the local disks before.",
                "That helps: each byte crosses the network once, and not once an epoch.",
            ),
            Option(
                "Decoding on other machines.",
                "Pixels have more bytes than the file: the network gets more to do.",
                right=True,
            ),
            Option(
                "Smaller files, made once.",
                "That helps: fewer bytes cross, in every epoch.",
            ),
        ),
    ),
)
