"""What sessions do with a net, part by part: a heading with a name and how often, then its lines.

Slots: $call calls the net, $wrong with an input of a wrong shape, $function with one that went through an
autograd.Function; $x is one of its floating inputs and $xs all of them, $inputs all inputs, $arguments what the net is
called with; $heads is what is differentiated, $grads shows all gradients, $batch makes new inputs of another batch
size, $attribute sets an attribute that the net reads, $child is a child of a net that is no HybridBlock, ${one|other}
is one of several texts. A part with a slot that a program cannot fill is left out. What writes and reads files is in
`files`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_TEXT = """
# a call 6
run.see('y', $call)

# several calls 3
for _ in range(${3|4}):
    y = $call
run.see('y', y)

# backward 8
with autograd.record(${||train_mode=False}):
    y = $call
autograd.backward($heads)
run.see('y', y)
$grads

# backward of a sum 3
with autograd.record():
    y = $call
    z = run.total(y) * ${2|0.5}
z.backward()
run.see('z', z)
$grads

# backward with gradients of the heads 3
with autograd.record():
    y = $call
heads = run.leaves(y)
autograd.backward(heads, [nd.ones_like(head) * ${0.5|-2} for head in heads])
$grads

# backward twice 2
with autograd.record():
    y = $call
autograd.backward($heads, retain_graph=True)
autograd.backward($heads)
$grads

# two calls in one record 2
with autograd.record():
    y = $call
    z = run.total($call)
    w = z * run.total(y)
w.backward()
run.see('w', w)
$grads

# grad 3
with autograd.record():
    y = $call
run.see('g', autograd.grad($heads, $xs), 'gradient')

# gradients of gradients 4
with autograd.record():
    y = $call
    g = autograd.grad($heads, $xs, create_graph=True)
    z = run.total([p * p for p in g])
z.backward()
run.see('z', z, 'gradient')
$grads

# a gradient penalty 1
trainer = gluon.Trainer(net.collect_params(), $optimizer)
for i in range(2):
    with autograd.record():
        y = $call
        g = autograd.grad($heads, $xs, create_graph=True)
        loss = run.total(y) + run.total([p * p for p in g])
    loss.backward()
    trainer.step(2, ignore_stale_grad=True)
    run.see('loss', loss, 'gradient')
run.see_net(net)

# gradients of gradients of parameters 1
with autograd.record():
    y = $call
    weights = [p.data() for p in net.collect_params().values() if p.grad_req != 'null']
    g = autograd.grad($heads, weights, create_graph=True)
    z = run.total([nd.sin(p) for p in g])
z.backward()
run.see('z', z, 'gradient')
$grads

# a function with a gradient of its own 2
with autograd.record():
    y = $call
    z = ${Scaled()(run.total(y))|Crossed()(run.total(y), run.total(y) * 2)[1]}
z.backward()
run.see('z', z)
$grads

# an input goes through a function with a gradient of its own 1
with autograd.record():
    y = $function
autograd.backward($heads)
run.see('y', y)
$grads

# two nets in one record 1
other = ${nn.Dense(3)|nn.Dense(2, activation='tanh')|nn.BatchNorm(axis=-1)}
run.initialize(other)
run.hybridize(other)
with autograd.record():
    y = $call
    z = ${run.total(other(run.leaves(y)[0]))|run.total(other(run.leaves(y)[-1])) * run.total(y)}
z.backward()
run.see('z', z)
run.see_net(other)
$grads

# two nets of one class in one record 2
other = type(net)()
run.initialize(other)
run.hybridize(other)
with autograd.record():
    y = run.total($call)
    z = run.total($other) * y
${z.backward()|autograd.backward([y, z])}
run.see('z', z)
run.see_net(other)
$grads

# hooks 2
first = net.register_forward_pre_hook(lambda block, inputs: run.see('inputs', list(inputs), 'state'))
second = net.register_forward_hook(lambda block, inputs, outputs: run.see('outputs', outputs))
${with autograd.record():|with autograd.predict_mode():|if True:}
    y = $call
first.detach()
second.detach()
run.see('y', $call)

# a hook of a child 1
with net.$child.register_forward_hook(lambda block, inputs, outputs: run.see('outputs', outputs)):
    y = $call
run.see('y', y)

# a hook that raises 1
def refuse(block, inputs):
    raise ValueError('by a hook')
with net.register_forward_pre_hook(refuse):
    try:
        run.see('y', $call)
    except ValueError as error:
        run.see_error(error)
run.see('y', $call)

# batches of a data loader 2
def work(batch):
    $unpacked = batch if isinstance(batch, list) else [batch]
    return $call
data = gluon.data.ArrayDataset($inputs)
for batch in gluon.data.DataLoader(data, batch_size=${1|2}, last_batch='${keep|discard}', num_workers=${0|0|2}):
    run.see('y', work(batch))

# a forked process 1
run.forked(lambda: $call)

# train mode without record 2
with autograd.train_mode():
    run.see('y', $call)
run.see_net(net)

# predict mode inside record 1
with autograd.record():
    with autograd.predict_mode():
        y = $call
autograd.backward($heads)
run.see('y', y)
$grads

# pause inside record 1
with autograd.record():
    with autograd.pause():
        y = $call
    z = $call
autograd.backward(run.leaves(z))
run.see('y', y)
$grads

# detach 1
with autograd.record():
    y = $call
    z = [p.detach() * p for p in run.leaves(y)]
autograd.backward(z)
$grads

# training 5
trainer = gluon.Trainer(net.collect_params(), $optimizer)
for i in range(3):
    with autograd.record():
        y = $call
        out = run.leaves(y)[${0|-1}]
        loss = $loss
    loss.backward()
    trainer.step(${1|2|4}, ignore_stale_grad=${True|False})
    run.see('loss', loss)
run.see_net(net)

# training goes on 1
with autograd.record():
    y = $call
    loss = run.total(y)
loss.backward()
trainer.step(2, ignore_stale_grad=True)
run.see_net(net)

# the input changes in place 2
$x[:] = ${$x * 0.5|$x * -1|$x * 0 + 0}
run.see('y', $call)

# the input changes before backward 1
with autograd.record():
    y = $call
run.write($x, ${0|1})
autograd.backward($heads)
$grads

# parameters change 1
for p in net.collect_params().values():
    p.set_data(p.data() * 0.5)
run.see('y', $call)

# requests for gradients 1
net.collect_params().setattr('grad_req', '${add|write|null}')

# requests for some gradients 1
net.collect_params('.*${weight|bias|gamma}').setattr('grad_req', '${null|write|add}')

# zero_grad 1
net.collect_params().zero_grad()
$grads

# requests of inputs 1
$x.attach_grad(grad_req='${add|write|null}')

# hybridize with other flags 2
run.hybridize(net, ${active=False|static_alloc=True|static_alloc=True, static_shape=True})

# hybridize again 1
run.hybridize(net)

# hybridize on and off 1
net.hybridize(False)
run.see('y', $call)
run.hybridize(net)
run.see('y', $call)

# cast 4
net.cast('${float16|float64|bfloat16|float32}')
run.see('y', $call)
with autograd.record():
    y = $call
autograd.backward($heads)
$grads

# another batch 2
$batch
run.see('y', $call)

# Ctrl-C 1
run.interrupt(net, lambda: $call, ${3|10|30|60|100|150|250})
run.see('y', $call)

# Ctrl-C in a recorded call 1
with autograd.record():
    run.interrupt(net, lambda: $call, ${5|20|50|100|200})
run.see('y', $call)

# Ctrl-C in backward 1
with autograd.record():
    y = $call
run.interrupt_backward(lambda: autograd.backward($heads), ${3|10|30|60})
net.collect_params().zero_grad()
$x.attach_grad()
run.see('y', $call)

# threads 1
run.threads(lambda: $call)

# an input of a wrong shape 1
try:
    $wrong
except Exception as error:
    run.see_error(error)
mx.random.seed(5)
run.see('y', $call)

# no arguments 1
net()

# an attribute changes 1
net.$attribute
run.see('y', $call)

# the code raises 1
net.fail = True
try:
    run.see('y', $call)
except Exception as error:
    run.see_error(error)
mx.random.seed(5)
net.fail = False
run.see('y', $call)

# an error between call and backward 1
with autograd.record():
    y = $call
    raise ValueError('in between')

# shapes 1
run.see('shapes', [p.shape for p in run.leaves($call)])
"""


class Part(NamedTuple):
    name: str
    weight: int
    lines: str


def parts_in(text: str) -> list[Part]:
    """The parts in a text, each below its heading."""
    return [
        Part(heading[1], int(heading[2]), block.partition("\n")[2].rstrip())
        for block in re.split(r"\n(?=# )", text.strip())
        if (heading := re.match(r"# (.*) (\d+)\n", block + "\n")) is not None
    ]


PARTS = parts_in(_TEXT)

OPTIMIZERS = [
    "'sgd', {'learning_rate': 0.1}",
    "'sgd', {'learning_rate': 0.05, 'momentum': 0.9, 'wd': 0.01}",
    "'sgd', {'learning_rate': 0.1, 'clip_gradient': 0.1}",
    "'nag', {'learning_rate': 0.05, 'momentum': 0.9}",
    "'adam', {'learning_rate': 0.01}",
    "'adam', {'lr_scheduler': mx.lr_scheduler.FactorScheduler(1, 0.5, base_lr=0.1)}",
    "'adamw', {'learning_rate': 0.01, 'wd': 0.1}",
    "'adamax', {'learning_rate': 0.01}",
    "'adagrad', {'learning_rate': 0.05}",
    "'adadelta', {}",
    "'rmsprop', {'learning_rate': 0.01, 'centered': True}",
    "'rmsprop', {'learning_rate': 0.01}",
    "'ftrl', {'learning_rate': 0.1}",
    "'signum', {'learning_rate': 0.01, 'wd': 0.01}",
]

LOSSES = [
    "gluon.loss.L2Loss()(out, nd.zeros_like(out))",
    "gluon.loss.L1Loss(weight=0.5)(out, nd.ones_like(out) * 0.3)",
    "gluon.loss.HuberLoss(rho=0.5)(out, nd.zeros_like(out))",
    "gluon.loss.SigmoidBCELoss()(out, nd.ones_like(out) * 0.5)",
    "gluon.loss.SoftmaxCELoss(sparse_label=False)(out, nd.softmax(nd.ones_like(out)))",
    "gluon.loss.SoftmaxCELoss()(out, nd.zeros_like(out.sum(axis=-1)))",
    "gluon.loss.KLDivLoss(from_logits=False)(out, nd.softmax(nd.ones_like(out)))",
    "gluon.loss.HingeLoss()(out, nd.ones_like(out))",
    "gluon.loss.LogisticLoss()(out, -nd.ones_like(out))",
    "gluon.loss.PoissonNLLLoss()(out, nd.ones_like(out))",
    "gluon.loss.TripletLoss()(out, nd.zeros_like(out), nd.ones_like(out))",
    "(out * out).sum()",
    "run.total(y)",
]

#: Of attributes that a net reads, after a call with them.
ATTRIBUTES = ["scale = 0.25", "flag = not net.flag", "times = 3", "numbers = [3]"]
