"""What else can be asked of a derivative, beside its values.

Taylor remainders, the two modes of differentiation against each other, the symmetry of
a Hessian, a declared pattern of zeros, and whether gradients accumulate.
"""
