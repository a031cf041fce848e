"""Checkpoints of trainings with several nets, Trainers, loaders and metrics, and of Modules, resumed to the bit."""

from __future__ import annotations

import functools
import json
import random
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import hybrid_lab as mx
from hybrid_lab import autograd, gluon, metric, nd
from hybrid_lab.diagnostics import HybridLabError, LoadMismatchError, SettingError
from hybrid_lab.gluon import nn

STEPS, AT = 9, 5
VALUES = np.random.RandomState(0).normal(size=(14, 3)).astype("float32")
LABELS = (VALUES.sum(axis=1) > 0).astype("float32")


def dense(*units):
    net = nn.HybridSequential()
    for size in units[:-1]:
        net.add(nn.Dense(size, activation="relu"), nn.BatchNorm(), nn.Dropout(0.3))
    net.add(nn.Dense(units[-1]))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def seed():
    mx.random.seed(1)
    np.random.seed(2)
    random.seed(3)


class Gan:
    """A generator and a discriminator, with two Trainers, two loaders and a metric."""

    def __init__(self, folder=None, names=True):
        seed()
        self.generator, self.discriminator = dense(6, 3), dense(5, 1)
        settings = {"learning_rate": 0.02, "lr_scheduler": mx.lr_scheduler.FactorScheduler(3, 0.8)}
        self.g = gluon.Trainer(self.generator.collect_params(), "adam", settings)
        self.d = gluon.Trainer(self.discriminator.collect_params(), "sgd", {"momentum": 0.9, "learning_rate": 0.05})
        self.real = gluon.data.DataLoader(gluon.data.ArrayDataset(VALUES), 4, shuffle=True, last_batch="rollover")
        self.noise = mx.io.NDArrayIter(VALUES[::-1], None, 4, shuffle=True, last_batch_handle="roll_over")
        self.accuracy = metric.Accuracy()
        self.loss = gluon.loss.SigmoidBinaryCrossEntropyLoss()
        parts = {"generator": self.generator, "discriminator": self.discriminator}, {"g": self.g, "d": self.d}
        loaders = {"real": self.real, "noise": self.noise}
        if not names:
            parts, loaders = tuple(list(each.values()) for each in parts), list(loaders.values())
        self.manager = folder and mx.checkpoint.Manager(folder, *parts, loaders, metrics=self.accuracy)

    def batches(self):
        while True:
            yield from self.real

    def fake(self):
        try:
            noise = self.noise.next()
        except StopIteration:
            self.noise.reset()
            noise = self.noise.next()
        return self.generator(noise.data[0] + nd.random.normal(shape=(4, 3)))

    def run(self, steps, save_at=None):
        point = self.manager.restore() if self.manager else None
        step, losses = point.step if point else 0, []
        for real in self.batches():
            with autograd.record():
                fake = self.fake()
                answers = nd.concat(self.discriminator(real), self.discriminator(fake.detach()), dim=0)
                truth = nd.concat(nd.ones((4, 1)), nd.zeros((4, 1)), dim=0)
                loss_d = self.loss(answers, truth).mean()
            loss_d.backward()
            self.d.step(1)
            self.accuracy.update(truth.reshape((-1,)), (answers > 0).reshape((-1,)))
            with autograd.record():
                loss_g = self.loss(self.discriminator(self.fake()), nd.ones((4, 1))).mean()
            loss_g.backward()
            self.g.step(1)
            losses.append((float(loss_d.asscalar()), float(loss_g.asscalar()), self.accuracy.get()[1]))
            step += 1
            if step == save_at:
                self.manager.save(step=step)
            if step == steps:
                return losses


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("at", [1, 3, 4, AT, 8])
def test_a_gan_goes_on_to_the_bit(at, names, tmp_path):
    expected = Gan().run(STEPS)
    assert len(set(expected)) == STEPS
    assert Gan(tmp_path, names).run(at, save_at=at) == expected[:at]
    again = Gan(tmp_path, names)
    mx.random.seed(77)
    np.random.seed(77)
    assert again.run(STEPS) == expected[at:]


def test_in_a_process_of_its_own(tmp_path):
    expected = Gan().run(STEPS)
    Gan(tmp_path).run(AT, save_at=AT)
    program = f"""
import json
from tests.checkpoint.test_several import Gan
print(json.dumps(Gan({str(tmp_path)!r}).run({STEPS})))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert [tuple(each) for each in json.loads(done.stdout)] == expected[AT:]


def test_the_file_opens_without_the_manager(tmp_path):
    gan = Gan(tmp_path)
    gan.run(AT, save_at=AT)
    (point,) = gan.manager.list()
    opened = gluon.load(point.path)
    x = nd.array(VALUES[:4])
    assert np.array_equal(opened.generator(x).asnumpy(), gan.generator(x).asnumpy())
    assert np.array_equal(opened.discriminator(x).asnumpy(), gan.discriminator(x).asnumpy())
    other = dense(6, 3)
    other(x)
    other.load(point.path, subtree="generator")
    assert np.array_equal(other(x).asnumpy(), gan.generator(x).asnumpy())


def state_of(gan):
    arrays = [array.asnumpy() for net in (gan.generator, gan.discriminator) for array in net.get_states().values()]
    trainers = [trainer.get_states() for trainer in (gan.g, gan.d)]
    return repr((arrays, trainers, gan.noise.get_state(), gan.accuracy.get_state(), gan.real.epoch, random.getstate()))


@pytest.mark.parametrize("part", ["generator", "g", "d", "real", "noise", "accuracy"])
def test_a_failed_restore_changes_nothing(part, tmp_path):
    """Whichever part does not fit: nets, Trainers, loaders and metrics are as they were."""
    Gan(tmp_path).run(AT, save_at=AT)
    other = Gan()
    other.run(2)
    if part == "generator":
        other.generator.add(nn.Dense(3, in_units=3))
        other.generator.initialize(force_reinit=True)
        other.g = gluon.Trainer(other.generator.collect_params(), "adam")
    elif part in ("g", "d"):
        net = other.generator if part == "g" else other.discriminator
        setattr(other, part, gluon.Trainer(net.collect_params(), "rmsprop"))
    elif part == "real":
        other.real = gluon.data.DataLoader(gluon.data.ArrayDataset(VALUES[:7]), 4)
    elif part == "noise":
        other.noise = mx.io.NDArrayIter(VALUES[:7], None, 4)
    else:
        other.accuracy = metric.F1()
    nets = {"generator": other.generator, "discriminator": other.discriminator}
    loaders = {"real": other.real, "noise": other.noise}
    trainers = {"g": other.g, "d": other.d}
    manager = mx.checkpoint.Manager(tmp_path, nets, trainers, loaders, metrics=other.accuracy)
    before = state_of(other)
    with pytest.raises(HybridLabError):
        manager.restore()
    assert state_of(other) == before


def test_parts_that_the_checkpoint_lacks(tmp_path):
    gan = Gan()
    gan.run(1)
    nets = {"generator": gan.generator, "discriminator": gan.discriminator}
    mx.checkpoint.Manager(tmp_path, nets).save(step=1)
    for options in ({"trainer": {"g": gan.g}}, {"loader": [gan.real, gan.noise]}, {"metrics": gan.accuracy}):
        with pytest.raises(HybridLabError, match="the checkpoint was saved without a"):
            mx.checkpoint.Manager(tmp_path, nets, **options).restore()
    with pytest.raises(LoadMismatchError):
        mx.checkpoint.Manager(tmp_path, {"generator": gan.generator, "critic": gan.discriminator}).restore()


def test_what_is_no_part(tmp_path):
    net = dense(2)
    for arguments in (([net, 5],), ({1: net},), ({},), ([],), (net, [net]), (net, None, [5]), ({"": net, "a": net},)):
        with pytest.raises(SettingError):
            mx.checkpoint.Manager(tmp_path, *arguments)
    with pytest.raises(SettingError, match=r"metrics\['1'\] is a int and no metric"):
        mx.checkpoint.Manager(tmp_path, net, metrics=[metric.Accuracy(), 5])


def test_a_trainer_of_another_net(tmp_path):
    net, other = dense(2), dense(2)
    for each in (net, other):
        each(nd.ones((1, 3)))
    manager = mx.checkpoint.Manager(tmp_path, [net], [gluon.Trainer(other.collect_params(), "sgd")])
    with pytest.raises(HybridLabError, match="Trainer"):
        manager.save(step=1)
    assert manager.list() == []


METRICS = {
    "composite": lambda: metric.CompositeEvalMetric([metric.Accuracy(), metric.F1()]),
    "function": lambda: metric.np(lambda label, pred: float((label == pred.argmax(axis=1)).mean())),
    "pearson": lambda: metric.PearsonCorrelation(average="micro"),
    "perplexity": lambda: metric.Perplexity(None),
    "pcc": lambda: metric.PCC(),
}


@pytest.mark.parametrize("name", METRICS)
def test_metrics_of_all_kinds(name, tmp_path):
    def update(one, number):
        scores = np.random.RandomState(number).rand(6, 2).astype("float32")
        labels = scores if name == "pearson" else np.random.RandomState(number + 9).randint(0, 2, 6)
        one.update([nd.array(labels + 0.5 if name == "pearson" else labels)], [nd.array(scores)])

    live, net = METRICS[name](), dense(2)
    update(live, 1)
    mx.checkpoint.Manager(tmp_path, net, metrics=live).save(step=1)
    fresh = METRICS[name]()
    mx.checkpoint.Manager(tmp_path, dense(2), metrics=fresh).restore()
    for each in (live, fresh):
        update(each, 2)
    assert fresh.get() == live.get() and fresh.get_global() == live.get_global()


def sentences():
    generator = random.Random(0)
    return [[generator.randint(0, 9) for _ in range(generator.randint(2, 5))] for _ in range(40)]


@functools.cache
def record_file():
    """A file of 10 images of 6 x 6, with its index."""
    folder = tempfile.mkdtemp()
    file = mx.recordio.MXIndexedRecordIO(f"{folder}/a.idx", f"{folder}/a.rec", "w")
    for number in range(10):
        pixels = np.full((6, 6, 3), number * 20, "uint8")
        pixels[:, ::2] += 9
        file.write_idx(number, mx.recordio.pack_img((0, float(number), number, 0), pixels, quality=1, img_fmt=".png"))
    file.close()
    return folder


def records(**settings):
    return mx.io.ImageRecordIter(f"{record_file()}/a.rec", (3, 4, 4), 4, **settings)


def images(**settings):
    settings = {"path_imgidx": f"{record_file()}/a.idx", **settings}
    return mx.image.ImageIter(4, (3, 4, 4), path_imgrec=f"{record_file()}/a.rec", **settings)


ITERATORS = {
    "plain": lambda: mx.io.NDArrayIter(VALUES, LABELS, 4),
    "shuffled": lambda: mx.io.NDArrayIter(VALUES, LABELS, 4, shuffle=True),
    "discard": lambda: mx.io.NDArrayIter(VALUES, LABELS, 4, shuffle=True, last_batch_handle="discard"),
    "roll_over": lambda: mx.io.NDArrayIter(VALUES, LABELS, 4, shuffle=True, last_batch_handle="roll_over"),
    "resized": lambda: mx.io.ResizeIter(mx.io.NDArrayIter(VALUES, LABELS, 4, shuffle=True), 6),
    "ahead": lambda: mx.io.PrefetchingIter(mx.io.NDArrayIter(VALUES, LABELS, 4)),
    "records": lambda: records(),
    "records shuffled": lambda: records(shuffle=True, seed=3),
    "records cut at random": lambda: records(shuffle=True, seed_aug=5, rand_crop=True, rand_mirror=True),
    "records without a round batch": lambda: records(round_batch=False),
    "images": lambda: images(),
    "images shuffled": lambda: images(shuffle=True),
    "images rolled over": lambda: images(shuffle=True, last_batch_handle="roll_over"),
    "images without an index": lambda: images(path_imgidx=None),
    "a loader": lambda: mx.contrib.io.DataLoaderIter(
        mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(VALUES, LABELS), 4, shuffle=True)
    ),
    "sentences": lambda: mx.rnn.BucketSentenceIter(sentences(), 3, buckets=[3, 5]),
}


def delivered(iterator, number):
    found = []
    while len(found) < number:
        try:
            batch = iterator.next()
        except StopIteration:
            iterator.reset()
            continue
        found.append((batch.data[0].asnumpy().tolist(), batch.label[0].asnumpy().tolist(), batch.pad))
    return found


@pytest.mark.each_value
@pytest.mark.parametrize("at", [0, 1, 3, 4, 6, 9])
@pytest.mark.parametrize("name", ITERATORS)
def test_iterators_go_on_where_they_were(name, at, tmp_path):
    seed()
    expected = delivered(ITERATORS[name](), 12)
    seed()
    source = ITERATORS[name]()
    assert delivered(source, at) == expected[:at]
    mx.checkpoint.Manager(tmp_path, dense(1), None, source).save(step=at)
    fresh = ITERATORS[name]()
    point = mx.checkpoint.Manager(tmp_path, dense(1), None, fresh).restore()
    assert point.epoch == source.epoch
    assert delivered(fresh, 12 - at) == expected[at:]


@pytest.mark.parametrize("name", ITERATORS)
def test_damaged_positions(name):
    iterator = ITERATORS[name]()
    iterator.next()
    state = iterator.get_state()
    for key in state if name != "ahead" else ("inner",):  # its epoch is that of the iterator inside
        for wrong in (None, "x", [], np.zeros(2)):
            if wrong is state.get(key, ""):  # None, as of an iterator that does not shuffle
                continue
            with pytest.raises(HybridLabError):
                ITERATORS[name]().set_state({**state, key: wrong})


def symbol():
    data = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=6, name="fc1")
    data = mx.sym.Dropout(mx.sym.BatchNorm(data, name="bn"), p=0.3)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=2, name="fc2"), name="softmax")


class ModuleTraining:
    def __init__(self, kind, folder=None):
        seed()
        self.iterator = mx.io.NDArrayIter(VALUES, LABELS, 4, shuffle=True)
        if kind == "module":
            self.module = mx.mod.Module(symbol())
        else:
            self.module = mx.mod.BucketingModule(lambda key: (symbol(), ("data",), ("softmax_label",)), 3)
        self.module.bind(self.iterator.provide_data, self.iterator.provide_label)
        self.module.init_params(mx.init.Xavier())
        self.module.init_optimizer(optimizer="adam", optimizer_params={"learning_rate": 0.05})
        self.accuracy = metric.Accuracy()
        parts = {"classifier": self.module} if kind == "bucketing" else self.module
        self.manager = folder and mx.checkpoint.Manager(folder, parts, None, self.iterator, metrics=self.accuracy)

    def run(self, steps, save_at=None):
        point = self.manager.restore() if self.manager else None
        step, found = point.step if point else 0, []
        while step < steps:
            for batch in self.iterator:
                batch.bucket_key = 3
                batch.provide_data, batch.provide_label = self.iterator.provide_data, self.iterator.provide_label
                self.module.forward(batch, is_train=True)
                self.module.update_metric(self.accuracy, batch.label)
                self.module.backward()
                self.module.update()
                found.append((self.module.get_outputs()[0].asnumpy().tolist(), self.accuracy.get()))
                step += 1
                if step == save_at:
                    self.manager.save(step=step)
                if step == steps:
                    return found
            self.iterator.reset()
        return found


@pytest.mark.parametrize("kind", ["module", "bucketing"])
@pytest.mark.parametrize("at", [1, 4, 6])
def test_modules_go_on_to_the_bit(at, kind, tmp_path):
    expected = ModuleTraining(kind).run(STEPS)
    assert ModuleTraining(kind, tmp_path).run(at, save_at=at) == expected[:at]
    assert ModuleTraining(kind, tmp_path).run(STEPS) == expected[at:]


def test_a_module_of_another_shape(tmp_path):
    ModuleTraining("module", tmp_path).run(2, save_at=2)
    other = ModuleTraining("module")
    other.module = mx.mod.Module(
        mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2, name="fc1"), name="softmax")
    )
    other.module.bind(other.iterator.provide_data, other.iterator.provide_label)
    other.module.init_params()
    before = {name: array.asnumpy() for name, array in other.module.get_params()[0].items()}
    with pytest.raises(LoadMismatchError) as caught:
        mx.checkpoint.Manager(tmp_path, other.module, None, other.iterator).restore()
    text = str(caught.value)
    assert "fc2_weight" in text and "fc1_weight" in text and "init_optimizer" in text
    after = other.module.get_params()[0]
    assert all(np.array_equal(before[name], after[name].asnumpy()) for name in before)


def test_a_net_beside_a_module(tmp_path):
    training, net = ModuleTraining("module"), dense(2)
    net(nd.ones((1, 3)))
    training.run(1)
    parts = {"module": training.module, "net": net}
    manager = mx.checkpoint.Manager(tmp_path, parts)
    manager.save(step=1)
    states = {name: array.asnumpy() for name, array in net.get_states().items()}
    net.initialize(force_reinit=True)
    manager.restore()
    assert all(np.array_equal(states[name], array.asnumpy()) for name, array in net.get_states().items())


class Untraceable(gluon.HybridBlock):
    """Has no graph, and an attribute that is no data."""

    def __init__(self):
        super().__init__()
        self.opened = open

    def __eq__(self, other):
        return self is other

    def hybrid_forward(self, F, x):
        return x * 2 if x.sum().asscalar() > 0 else x


def test_what_a_checkpoint_leaves_out_is_named_once(tmp_path, caplog):
    net = Untraceable()
    net(nd.ones((2,)))
    manager = mx.checkpoint.Manager(tmp_path, net)
    for step in range(3):
        manager.save(step)
    assert caplog.text.count("no graph was saved of") == 1 and caplog.text.count("were not saved: self.opened") == 1
    net.save(tmp_path / "again")
    assert caplog.text.count("were not saved: self.opened") == 2
